//! Quotas of projects.
//!
//! What is counted is counted under the lock of the project's row, so that requests and plans that
//! come at once cannot pass a quota together. A project without quotas is not locked.

use std::fmt;

use assay_api::{ErrorCode, JobId};
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use crate::project::lock;
use crate::rows::{bigint, count};
use crate::{AttemptFailure, ProjectId, StoreError};

/// What a project may have so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Jobs that have not ended.
    UnfinishedJobs,
    /// Tokens planned in a day of UTC.
    TokensPerDay,
}

/// A quota that would be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which.
    pub quota: Quota,
    /// How much there may be.
    pub limit: u64,
    /// How much there is.
    pub used: u64,
    /// How much more was asked for.
    pub wanted: u64,
    /// When there is room again, where time alone makes it.
    pub frees_at: Option<DateTime<Utc>>,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            limit,
            used,
            wanted,
            ..
        } = self;
        match (self.quota, self.frees_at) {
            (Quota::UnfinishedJobs, _) => write!(
                f,
                "the project has {used} jobs that have not ended, of {limit} that it may have; it \
                 frees as one of them ends or is cancelled"
            ),
            (Quota::TokensPerDay, Some(at)) => write!(
                f,
                "the project has planned {used} tokens today, of {limit} that it may, and {wanted} \
                 more were wanted; it frees at {}",
                at.format("%Y-%m-%dT%H:%M:%SZ")
            ),
            (Quota::TokensPerDay, None) => write!(
                f,
                "the job has {wanted} tokens, and the project may plan {limit} in a day; post it in \
                 parts, or have the quota raised"
            ),
        }
    }
}

#[derive(FromRow)]
struct Limits {
    jobs: Option<i32>,
    tokens: Option<i64>,
}

#[derive(FromRow)]
struct Used {
    jobs: i64,
    tokens: i64,
    tomorrow: DateTime<Utc>,
}

async fn limits(tx: &mut PgConnection, project: ProjectId) -> Result<Limits, StoreError> {
    Ok(sqlx::query_as(
        "select max_unfinished_jobs as jobs, tokens_per_day as tokens from projects where id = $1",
    )
    .bind(project)
    .fetch_one(tx)
    .await?)
}

/// What is used now. The days of the quota are those of UTC.
async fn used(tx: &mut PgConnection, project: ProjectId) -> Result<Used, StoreError> {
    Ok(sqlx::query_as(
        "select (select count(*) from jobs where project_id = $1 and finished_at is null) as jobs,
                (select coalesce(sum(charged_tokens), 0)::bigint from jobs
                 where project_id = $1 and charged_at >= date_trunc('day', now(), 'UTC')) as tokens,
                date_trunc('day', now(), 'UTC') + interval '1 day' as tomorrow",
    )
    .bind(project)
    .fetch_one(tx)
    .await?)
}

/// The quota that a new job of the project would pass, if it would. Until the transaction ends nobody
/// else adds to what is limited.
pub(crate) async fn before_job(
    tx: &mut PgConnection,
    project: ProjectId,
) -> Result<Option<Exceeded>, StoreError> {
    let limits = limits(tx, project).await?;
    if limits.jobs.is_none() && limits.tokens.is_none() {
        return Ok(None);
    }
    lock(tx, project).await?;
    let used = used(tx, project).await?;
    if let Some(limit) = limits.jobs
        && used.jobs >= limit.into()
    {
        return Ok(Some(Exceeded {
            quota: Quota::UnfinishedJobs,
            limit: count(limit)?,
            used: count(used.jobs)?,
            wanted: 1,
            frees_at: None,
        }));
    }
    // How many tokens it has is not known before it is planned; that there are none left is.
    match limits.tokens {
        Some(limit) if used.tokens >= limit => Ok(Some(Exceeded {
            quota: Quota::TokensPerDay,
            limit: count(limit)?,
            used: count(used.tokens)?,
            wanted: 1,
            frees_at: Some(used.tomorrow),
        })),
        _ => Ok(None),
    }
}

/// Charges a job for the tokens of its plan, those alone that are not taken from other jobs. The
/// caller holds the job. The quota that it would pass, if it would: then nothing is charged.
pub(crate) async fn charge(
    tx: &mut PgConnection,
    job: JobId,
) -> Result<Option<Exceeded>, StoreError> {
    let (project, tokens): (ProjectId, i64) = sqlx::query_as(
        "select j.project_id, coalesce((
                    select sum(d.planned_tokens) from datasets d
                    where d.job_id = j.id and d.reused_from is null
                ), 0)::bigint
         from jobs j where j.id = $1",
    )
    .bind(job)
    .fetch_one(&mut *tx)
    .await?;
    if let Some(limit) = limits(tx, project).await?.tokens {
        lock(tx, project).await?;
        let used = used(tx, project).await?;
        if tokens > limit.saturating_sub(used.tokens) {
            return Ok(Some(Exceeded {
                quota: Quota::TokensPerDay,
                limit: count(limit)?,
                used: count(used.tokens)?,
                wanted: count(tokens)?,
                frees_at: (tokens <= limit).then_some(used.tomorrow),
            }));
        }
    }
    sqlx::query("update jobs set charged_tokens = $2, charged_at = now() where id = $1")
        .bind(job)
        .bind(bigint(count(tokens)?)?)
        .execute(tx)
        .await?;
    Ok(None)
}

impl Exceeded {
    /// The end of a planning that passes the quota: another worker would come to the same.
    pub(crate) fn failure(self) -> AttemptFailure {
        AttemptFailure {
            code: ErrorCode::QuotaExceeded,
            detail: self.to_string(),
            field: None,
            is_final: true,
            computed_tokens: 0,
        }
    }
}
