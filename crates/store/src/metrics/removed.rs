//! What jobs had counted that are deleted.

use std::collections::BTreeMap;

use assay_api::JobId;
use sqlx::PgConnection;

use super::now::counts;
use super::totals::{attempts, first_claims, latency_bounds, microseconds};
use crate::StoreError;

/// How many jobs were deleted, by the state in which they had ended.
pub(super) async fn jobs(tx: &mut PgConnection) -> Result<BTreeMap<String, u64>, StoreError> {
    let rows = sqlx::query_as("select state::text, jobs from removed_jobs");
    counts(rows.fetch_all(tx).await?)
}

/// Adds what these jobs have counted to what is kept. The caller deletes them in the same
/// transaction, and none of their attempts is live.
pub(crate) async fn keep_counts(tx: &mut PgConnection, jobs: &[JobId]) -> Result<(), StoreError> {
    // Who deletes other jobs at the same time adds to the same rows. One after the other, so that
    // no two wait for each other.
    sqlx::query("lock table removed_jobs in share row exclusive mode")
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "insert into removed_jobs as r (state, jobs)
         select state, count(*) from jobs where id = any($1) group by state
         on conflict (state) do update set jobs = r.jobs + excluded.jobs",
    )
    .bind(jobs)
    .execute(&mut *tx)
    .await?;
    sqlx::query(concat!(
        "insert into removed_attempts as r
             (kind, outcome, device_kind, attempts, tokens, computing, claiming, loading,
              committing, late, revoked) ",
        attempts!("", "a.job_id = any($1)", "1, 2, 3"),
        " on conflict (kind, outcome, device_kind) do update
         set attempts = r.attempts + excluded.attempts, tokens = r.tokens + excluded.tokens,
             computing = r.computing + excluded.computing,
             claiming = r.claiming + excluded.claiming, loading = r.loading + excluded.loading,
             committing = r.committing + excluded.committing, late = r.late + excluded.late,
             revoked = r.revoked + excluded.revoked"
    ))
    .bind(jobs)
    .execute(&mut *tx)
    .await?;
    sqlx::query(concat!(
        "with ",
        first_claims!("a.job_id = any($1)", "job_id = any($1)", "true", "$2"),
        "insert into removed_claims as r (work, class, claims, microseconds)
         select work, class, count(*), sum(microseconds)::bigint from told group by work, class
         on conflict (work, class) do update
         set claims = r.claims + excluded.claims,
             microseconds = r.microseconds + excluded.microseconds"
    ))
    .bind(jobs)
    .bind(latency_bounds()?)
    .execute(tx)
    .await?;
    Ok(())
}
