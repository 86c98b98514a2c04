//! Claims: a worker takes hold of a job's planning, or of shards.
//!
//! A claim waits for no lock: it takes rows with `skip locked`, and what somebody else holds at
//! that moment is not there. So a claim may find nothing although there is something; whoever
//! finds nothing looks again within a second.

mod audit;
mod context;
mod copy;
mod plan;
mod shard;

pub(crate) use audit::may_audit;
pub use context::{RunContext, RunDataset};
pub use plan::PlanClaim;
pub use shard::ShardClaim;
pub(crate) use shard::{Claimed, seconds_of, take};

use std::time::Duration;

use assay_api::{JobId, WorkerId};
use assay_scoring::Supply;
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::rates::Pool;
use crate::rows::bigint;
use crate::{Store, StoreError};

/// Running jobs that are looked at in one go.
const PAGE: usize = 8;

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
    /// The rate that this device measured last itself, if it did. Where a job has another key, the
    /// ledger's rate of its kind is taken.
    pub rate: Option<DeviceRate<'a>>,
}

/// How fast a device is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceRate<'a> {
    /// [`RunContext::rate_key`] of the job it was measured at.
    pub key: &'a str,
    /// Planned floating-point operations per second.
    pub flops_per_second: f64,
}

impl Claimant<'_> {
    /// What the device itself measured at jobs of this key.
    fn own_rate(&self, rate_key: Option<&str>) -> Option<f64> {
        let rate = self.rate.filter(|rate| Some(rate.key) == rate_key)?;
        // A clock may say that something took no time.
        let usable = rate.flops_per_second.is_finite() && rate.flops_per_second > 0.0;
        usable.then_some(rate.flops_per_second)
    }
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

/// A running job that has something to claim.
#[derive(FromRow)]
pub(crate) struct OpenJob {
    pub(crate) id: JobId,
    /// Priority of the job and of its project.
    rank: i32,
    pub(crate) rate_key: Option<String>,
    /// A device is to measure the baseline before anything else is claimed.
    baseline_wanted: bool,
    queued: bool,
    to_audit: bool,
    /// Operations that are not counted yet.
    remaining: f64,
}

#[derive(FromRow)]
struct Outlook {
    in_service: bool,
    /// Some job waits for planning.
    plannable: bool,
}

/// Whether worker $1 may still claim. A macro, because sqlx takes statements as literals.
macro_rules! in_service {
    () => {
        "exists (select from workers w where w.id = $1 and w.out_of_service_at is null)"
    };
}
pub(crate) use in_service;

/// After an error another worker tries, where one is live: true if worker $1 has not failed what
/// it would claim, or is alone at the time $5.
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
                  where w.id <> $1 and w.stopped_at is null and w.out_of_service_at is null
                    and w.lease_until > coalesce($5, now())
              ))"
        )
    };
}
pub(crate) use may_try;

impl Store {
    /// Takes hold of what this device should do next: the planning of a job, alone; or shards of
    /// one job, in the order in which the device should run them; or nothing.
    ///
    /// Plannings come first. Then the running jobs, by priority (that of the project added) and age: of the first that has
    /// something, queued shards, as many as [`Supply::quota`] says, the largest first; else a
    /// counted shard to audit. If no job has anything: a shard again that another device is slow
    /// with. A job whose baseline is to be measured gives its shards to one device of the fastest
    /// kind, and nothing to others until that one is done, but for the first shard of a kind of
    /// which nothing is known.
    ///
    /// A worker that failed a shard gets it again only while no other worker is live. One that is
    /// out of service gets nothing.
    ///
    /// # Errors
    /// The database does not answer, or the worker is unknown.
    pub async fn claim(
        &self,
        claimant: &Claimant<'_>,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<Claim>, StoreError> {
        let outlook: Option<Outlook> = sqlx::query_as(
            "select out_of_service_at is null as in_service,
                    exists (select from jobs where state = 'queued') as plannable
             from workers where id = $1",
        )
        .bind(claimant.worker)
        .fetch_optional(&self.pool)
        .await?;
        let outlook = outlook.ok_or(StoreError::UnknownWorker(claimant.worker))?;
        if !outlook.in_service {
            return Ok(Vec::new());
        }
        if outlook.plannable
            && let Some(claim) = self.claim_plan(claimant, now).await?
        {
            return Ok(vec![claim]);
        }
        let mut behind = None;
        loop {
            let jobs = self.open_jobs(behind).await?;
            for job in &jobs {
                let claims = self.claim_of_job(claimant, job, now).await?;
                if !claims.is_empty() {
                    return Ok(claims);
                }
            }
            match jobs.last() {
                Some(last) if jobs.len() == PAGE => behind = Some((last.rank, last.id)),
                _ => break,
            }
        }
        let copy = self.claim_copy(claimant, now).await?;
        Ok(copy.into_iter().collect())
    }

    /// Running jobs that have something to claim, by rank and age, those behind `behind`.
    async fn open_jobs(&self, behind: Option<(i32, JobId)>) -> Result<Vec<OpenJob>, StoreError> {
        Ok(sqlx::query_as(
            "select * from (
                 select j.id, j.rank, j.rate_key,
                        coalesce(j.baseline_state = 'wanted', false) as baseline_wanted,
                        exists (
                            select from shards s where s.job_id = j.id and s.state = 'queued'
                        ) as queued,
                        j.audits_left > 0 and exists (
                            select from shards s
                            where s.job_id = j.id and s.state = 'done'
                              and s.audit in ('wanted', 'disputed')
                        ) as to_audit,
                        (select coalesce(sum(d.flops_left), 0) from datasets d
                         where d.job_id = j.id) as remaining
                 from jobs j
                 where j.state = 'running' and j.baseline_state is distinct from 'running'
                   and ($1::integer is null or j.rank < $1 or j.rank = $1 and j.id > $2)
                 order by j.rank desc, j.id
                 offset 0
             ) j
             where queued or to_audit
             limit $3",
        )
        .bind(behind.map(|(rank, _)| rank))
        .bind(behind.map(|(_, id)| id))
        .bind(bigint(PAGE as u64)?)
        .fetch_all(&self.pool)
        .await?)
    }

    async fn claim_of_job(
        &self,
        claimant: &Claimant<'_>,
        job: &OpenJob,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<Claim>, StoreError> {
        if !job.queued {
            let audit = self.claim_audit(claimant, job, now).await?;
            return Ok(audit.into_iter().collect());
        }
        let (key, kind) = (job.rate_key.as_deref(), claimant.device_kind);
        let pool = Pool::read(&self.pool, key, kind, now).await?;
        let rate = claimant.own_rate(key).or_else(|| pool.rate_of(kind));
        // Where there are several kinds, one that is not known shows by its smallest shard what it
        // can do: a sample of it might take hours, while the others wait.
        if job.baseline_wanted && (rate.is_some() || !pool.has_several_kinds()) {
            return self.claim_sample(claimant, job, &pool, rate, now).await;
        }
        let supply = Supply {
            rate,
            pool_rate: pool.rate_with(rate.unwrap_or(0.0)),
            devices: pool.devices()?,
            remaining: job.remaining,
        };
        let claims = self.claim_shards(claimant, job, &supply, now).await?;
        if !claims.is_empty() || !job.to_audit {
            return Ok(claims);
        }
        let audit = self.claim_audit(claimant, job, now).await?;
        Ok(audit.into_iter().collect())
    }
}
