//! Claims: a worker takes hold of a job's planning or of a shard.

use std::time::Duration;

use assay_api::{DatasetRef, Dtype, JobId, Method, WorkerId};
use assay_scoring::{ClusterLayout, MicroBatch};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::rows::{index_of, json, parse};
use crate::{PlanFacts, Store, StoreError};

/// Who claims.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The worker.
    pub worker: WorkerId,
    /// Its device, as given to it.
    pub device: &'a str,
    /// The device kind.
    pub device_kind: &'a str,
    /// How long the claim holds without a renewal.
    pub lease: Duration,
}

/// Something a worker has taken hold of.
#[derive(Debug)]
pub struct Claim {
    /// The number of the attempt; every write about it names it.
    pub fence: i64,
    /// The job.
    pub job: JobId,
    /// What to do.
    pub work: Work,
}

/// What to do under a claim.
#[derive(Debug)]
pub enum Work {
    /// Plan the job.
    Plan(PlanClaim),
    /// Run a shard.
    Shard(ShardClaim),
}

/// A job to plan.
#[derive(Debug)]
pub struct PlanClaim {
    /// Path of the checkpoint below the model root.
    pub model: String,
    /// Each dataset under each method, in the order of the rows.
    pub rows: Vec<(DatasetRef, Method)>,
    /// The dtype.
    pub dtype: Dtype,
    /// Whether the number of every counted token is kept.
    pub token_output: bool,
    /// Whether numbers of earlier jobs may be taken; [`Store::commit_plan`] decides.
    pub reuse: bool,
}

#[derive(FromRow)]
struct PlanRow {
    fence: i64,
    id: JobId,
    model: String,
    dtype: String,
    token_output: bool,
    reuse: bool,
}

/// A shard to run.
#[derive(Debug)]
pub struct ShardClaim {
    /// Index in the job.
    pub index: u32,
    /// Index of the row in the job.
    pub dataset: u32,
    /// The windows, in the composition the plan fixed.
    pub micro_batches: Vec<MicroBatch>,
    /// Digest of the spans as planned.
    pub spans_digest: String,
    /// Floating-point operations it is planned to cost.
    pub flops: f64,
    /// Times that its micro-batches are halved, as an earlier attempt found necessary.
    pub split_depth: u32,
}

/// What every shard of a job needs besides its windows.
#[derive(Debug)]
pub struct RunContext {
    /// The dtype.
    pub dtype: Dtype,
    /// Whether the number of every counted token is kept.
    pub token_output: bool,
    /// What the planner found and fixed.
    pub plan: PlanFacts,
    /// Each dataset under each method, in the order of the rows.
    pub datasets: Vec<RunDataset>,
}

/// A planned row.
#[derive(Debug)]
pub struct RunDataset {
    /// Where the dataset is.
    pub source: DatasetRef,
    /// The method.
    pub method: Method,
    /// The token before each document, or before the joined text.
    pub prefix: Option<u32>,
    /// Digest of its tokens as planned.
    pub tokens_digest: String,
    /// Where a token's NLL is added.
    pub clusters: ClusterLayout,
}

#[derive(FromRow)]
struct ShardRow {
    fence: i64,
    job_id: JobId,
    index: i32,
    dataset: i32,
    micro_batches: serde_json::Value,
    spans_digest: String,
    flops: f64,
    split_depth: i32,
}

#[derive(FromRow)]
struct RunRow {
    source: serde_json::Value,
    method: serde_json::Value,
    prefix: Option<i64>,
    tokens_digest: String,
    clusters: serde_json::Value,
}

/// After an error another worker tries, where one is live: true if worker $1 has not failed what
/// it would claim, or is alone at the time $5. A macro, because sqlx takes statements as literals.
macro_rules! may_try {
    ($errors:literal, $attempts:literal) => {
        concat!(
            "(",
            $errors,
            " = 0
              or not exists (
                  select from attempts a
                  where ",
            $attempts,
            " and a.worker_id = $1 and a.outcome = 'failed'
              )
              or not exists (
                  select from workers w
                  where w.id <> $1 and w.stopped_at is null
                    and w.lease_until > coalesce($5, now())
              ))"
        )
    };
}

impl Store {
    /// Takes hold of the oldest job that waits for planning, else of the first queued shard of the
    /// oldest running job. A worker that failed a shard gets it again only while no other worker
    /// is live.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn claim(
        &self,
        claimant: &Claimant<'_>,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<Claim>, StoreError> {
        match self.claim_plan(claimant, now).await? {
            Some(claim) => Ok(Some(claim)),
            None => self.claim_shard(claimant, now).await,
        }
    }

    async fn claim_plan(
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
                 order by id
                 limit 1
                 for no key update skip locked
             ), taken as (
                 update jobs j
                 set state = 'planning', started_at = coalesce(j.started_at, $5, now())
                 from candidate c where j.id = c.id
                 returning j.id, j.model, j.dtype, j.token_output, j.reuse
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
            model: row.model,
            rows: rows
                .into_iter()
                .map(|(source, method)| Ok((json(source)?, json(method)?)))
                .collect::<Result<_, StoreError>>()?,
            dtype: parse(row.dtype)?,
            token_output: row.token_output,
            reuse: row.reuse,
        };
        Ok(Some(Claim {
            fence: row.fence,
            job: row.id,
            work: Work::Plan(plan),
        }))
    }

    async fn claim_shard(
        &self,
        claimant: &Claimant<'_>,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<Claim>, StoreError> {
        let row: Option<ShardRow> = sqlx::query_as(concat!(
            "with candidate as (
                 select s.job_id, s.index
                 from shards s join jobs j on j.id = s.job_id
                 where j.state = 'running' and s.state = 'queued' and ",
            may_try!("s.errors", "a.job_id = s.job_id and a.shard = s.index"),
            "
                 order by s.job_id, s.index
                 limit 1
                 for no key update of s skip locked
             ), taken as (
                 update shards s set state = 'running'
                 from candidate c where s.job_id = c.job_id and s.index = c.index
                 returning s.job_id, s.index, s.dataset, s.micro_batches, s.spans_digest, s.flops,
                           s.split_depth
             ), attempt as (
                 insert into attempts
                     (job_id, shard, kind, worker_id, device, device_kind, started_at, lease_until)
                 select job_id, index, 'primary', $1, $2, $3, coalesce($5, now()),
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
        let shard = ShardClaim {
            index: index_of(row.index)?,
            dataset: index_of(row.dataset)?,
            micro_batches: json(row.micro_batches)?,
            spans_digest: row.spans_digest,
            flops: row.flops,
            split_depth: index_of(row.split_depth)?,
        };
        Ok(Some(Claim {
            fence: row.fence,
            job: row.job_id,
            work: Work::Shard(shard),
        }))
    }

    /// What the shards of a planned job share. None if there is no such job or no plan yet.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn run_context(&self, job: JobId) -> Result<Option<RunContext>, StoreError> {
        let row: Option<(String, bool, Option<serde_json::Value>)> =
            sqlx::query_as("select dtype, token_output, plan from jobs where id = $1")
                .bind(job)
                .fetch_optional(&self.pool)
                .await?;
        let Some((dtype, token_output, Some(plan))) = row else {
            return Ok(None);
        };
        let rows: Vec<RunRow> = sqlx::query_as(
            "select source, method, prefix, tokens_digest, clusters from datasets
             where job_id = $1 order by index",
        )
        .bind(job)
        .fetch_all(&self.pool)
        .await?;
        let datasets = rows
            .into_iter()
            .map(|row| {
                Ok(RunDataset {
                    source: json(row.source)?,
                    method: json(row.method)?,
                    prefix: row.prefix.map(token).transpose()?,
                    tokens_digest: row.tokens_digest,
                    clusters: json(row.clusters)?,
                })
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(Some(RunContext {
            dtype: parse(dtype)?,
            token_output,
            plan: json(plan)?,
            datasets,
        }))
    }
}

fn token(id: i64) -> Result<u32, StoreError> {
    id.try_into()
        .map_err(|_| StoreError::Unexpected(format!("token id {id}")))
}
