//! The claim of a job's planning.

use assay_api::{DatasetRef, Dtype, JobId, Method, ModelRef, Numerics};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{Claim, Claimant, Work, may_try};
use crate::rows::{json, parse};
use crate::{Store, StoreError};

/// A job to plan.
#[derive(Debug)]
pub struct PlanClaim {
    /// The checkpoint.
    pub model: ModelRef,
    /// Each dataset under each method, in the order of the rows.
    pub rows: Vec<(DatasetRef, Method)>,
    /// The dtype.
    pub dtype: Dtype,
    /// Whether a device may compute in another one.
    pub numerics: Numerics,
    /// Whether the number of every counted token is kept.
    pub token_output: bool,
}

#[derive(FromRow)]
struct PlanRow {
    fence: i64,
    id: JobId,
    model: String,
    adapter: Option<String>,
    dtype: String,
    numerics: String,
    token_output: bool,
}

impl Store {
    /// Takes hold of the planning of the job of the highest priority, then the oldest.
    pub(super) async fn claim_plan(
        &self,
        claimant: &Claimant<'_>,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<Claim>, StoreError> {
        let row: Option<PlanRow> = sqlx::query_as(concat!(
            "with candidate as (
                 select id from jobs j
                 where j.state = 'queued' and ",
            may_try!("j.plan_errors", "a.job_id = j.id and a.shard is null"),
            "
                   and exists (
                       select from workers w where w.id = $1 and w.out_of_service_at is null
                   )
                 order by j.rank desc, j.id
                 limit 1
                 for no key update skip locked
             ), taken as (
                 update jobs j
                 set state = 'planning', started_at = coalesce(j.started_at, $5, now())
                 from candidate c where j.id = c.id
                 returning j.id, j.model, j.adapter, j.dtype, j.numerics, j.token_output
             ), attempt as (
                 insert into attempts
                     (job_id, kind, worker_id, device, device_kind, started_at, lease_until)
                 select id, 'plan', $1, $2, $3, coalesce($5, now()),
                        coalesce($5, now()) + make_interval(secs => $4)
                 from taken
                 returning fence
             )
             select attempt.fence, taken.* from taken, attempt"
        ))
        .bind(claimant.worker)
        .bind(claimant.device)
        .bind(claimant.device_kind)
        .bind(claimant.lease.as_secs_f64())
        .bind(now)
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let rows: Vec<(serde_json::Value, serde_json::Value)> =
            sqlx::query_as("select source, method from datasets where job_id = $1 order by index")
                .bind(row.id)
                .fetch_all(&self.pool)
                .await?;
        let plan = PlanClaim {
            model: ModelRef {
                path: row.model,
                adapter: row.adapter,
            },
            rows: rows
                .into_iter()
                .map(|(source, method)| Ok((json(source)?, json(method)?)))
                .collect::<Result<_, StoreError>>()?,
            dtype: parse(row.dtype)?,
            numerics: parse(row.numerics)?,
            token_output: row.token_output,
        };
        Ok(Some(Claim {
            fence: row.fence,
            job: row.id,
            work: Work::Plan(plan),
        }))
    }
}
