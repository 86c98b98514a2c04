//! Claims of queued shards.

use assay_api::{AttemptKind, JobId};
use assay_scoring::{MicroBatch, Supply};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{Claim, Claimant, OpenJob, Work, in_service, may_try};
use crate::rows::{index_of, json, parse};
use crate::{Store, StoreError};

/// Shards in a claim at most, however small they are. What a lost claim costs, and how long the
/// statement takes, grow with it.
const MOST: i64 = 64;

/// A shard to run.
#[derive(Debug)]
pub struct ShardClaim {
    /// Why: [`AttemptKind::Primary`], [`AttemptKind::Copy`] or [`AttemptKind::Audit`].
    pub kind: AttemptKind,
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

impl ShardClaim {
    /// Its first micro-batch, as a shard of its own that nobody commits.
    #[must_use]
    pub fn beginning(&self) -> Self {
        let micro_batches: Vec<_> = self.micro_batches.iter().take(1).cloned().collect();
        let part = micro_batches.len() as f64 / self.micro_batches.len().max(1) as f64;
        Self {
            kind: self.kind,
            index: self.index,
            dataset: self.dataset,
            micro_batches,
            spans_digest: self.spans_digest.clone(),
            flops: self.flops * part,
            split_depth: self.split_depth,
        }
    }
}

/// An attempt just inserted, and its shard.
#[derive(FromRow)]
pub(crate) struct Claimed {
    fence: i64,
    kind: String,
    index: i32,
    dataset: i32,
    micro_batches: serde_json::Value,
    spans_digest: String,
    flops: f64,
    split_depth: i32,
}

impl Claimed {
    pub(crate) fn into_claim(self, job: JobId) -> Result<Claim, StoreError> {
        let shard = ShardClaim {
            kind: parse(self.kind)?,
            index: index_of(self.index)?,
            dataset: index_of(self.dataset)?,
            micro_batches: json(self.micro_batches)?,
            spans_digest: self.spans_digest,
            flops: self.flops,
            split_depth: index_of(self.split_depth)?,
        };
        Ok(Claim {
            fence: self.fence,
            job,
            work: Work::Shard(shard),
        })
    }
}

/// Seconds that so many operations take by the rate $7; null without a rate. Bounded, since an
/// interval is; `least` alone would make a bound of a null.
macro_rules! seconds_of {
    ($flops:literal) => {
        concat!(
            "case when $7::double precision is not null then least(",
            $flops,
            " / $7, 1e9) end"
        )
    };
}
pub(crate) use seconds_of;

/// A statement that takes the queued shards that `$candidates` selects and locks, and makes an
/// attempt for each, in the order of the candidates' operations, largest first. Parameters: $1
/// worker, $2 device, $3 device kind, $4 seconds of the lease, $5 now, $6 job, $7 rate.
macro_rules! take {
    ($solo:literal, $($candidates:tt)*) => {
        concat!(
            "with candidate as (",
            $($candidates)*,
            "), taken as (
                 update shards s set state = 'running'
                 from candidate c where s.job_id = $6 and s.index = c.index
                 returning s.index, s.dataset, s.micro_batches, s.spans_digest, s.flops,
                           s.split_depth
             ), expected as (
                 select index,
                        row_number() over (order by flops desc, index) as place,
                        sum(flops) over (order by flops desc, index) as until
                 from taken
             ), attempt as (
                 insert into attempts
                     (job_id, shard, kind, worker_id, device, device_kind, solo, started_at,
                      lease_until, expected_at)
                 select $6, index, 'primary', $1, $2, $3, ", $solo, ", coalesce($5, now()),
                        coalesce($5, now()) + make_interval(secs => $4),
                        coalesce($5, now()) + make_interval(secs => ",
            $crate::claim::seconds_of!("until"),
            ")
                 from expected order by place
                 returning fence, shard
             )
             select a.fence, 'primary' as kind, t.*
             from attempt a join taken t on t.index = a.shard
             order by t.flops desc, t.index"
        )
    };
}
pub(crate) use take;

/// Queued shards of job $6 that worker $1 may take now, in these states of its baseline. Once
/// measured or not wanted it stays so: no lock is needed to be sure of it.
macro_rules! takeable {
    ($baseline:literal) => {
        concat!(
            "from shards s join jobs j on j.id = s.job_id
             where s.job_id = $6 and s.state = 'queued' and j.state = 'running'
               and coalesce(j.baseline_state, 'done') in (",
            $baseline,
            ") and ",
            in_service!(),
            " and ",
            may_try!("s.errors", "a.job_id = s.job_id and a.shard = s.index"),
        )
    };
}

impl Store {
    /// Takes queued shards of a job that waits for no baseline, as many as the quota says; one
    /// where it does, and nothing is known of the device.
    pub(super) async fn claim_shards(
        &self,
        claimant: &Claimant<'_>,
        job: &OpenJob,
        supply: &Supply,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<Claim>, StoreError> {
        let quota = supply.quota();
        let mut claimed: Vec<Claimed> = Vec::new();
        if supply.rate.is_some() {
            // How many make up the total is counted before they are locked, and by the largest:
            // where others hold these, as many a little smaller ones are taken.
            claimed = sqlx::query_as(take!(
                "false",
                "select s.index ",
                takeable!("'done'"),
                " and s.flops <= $8
                  order by s.flops desc, s.index
                  limit (
                      select greatest(count(*), 1)
                      from (
                          select sum(q.flops) over (order by q.flops desc, q.index) - q.flops
                                 as before
                          from (
                              select s.flops, s.index from shards s
                              where s.job_id = $6 and s.state = 'queued' and s.flops <= $8
                              order by s.flops desc, s.index
                              limit $10
                          ) q
                      ) b
                      where b.before < $9
                  )
                  for no key update of s skip locked"
            ))
            .bind(claimant.worker)
            .bind(claimant.device)
            .bind(claimant.device_kind)
            .bind(claimant.lease.as_secs_f64())
            .bind(now)
            .bind(job.id)
            .bind(supply.rate)
            .bind(quota.largest)
            .bind(quota.total)
            .bind(MOST)
            .fetch_all(&self.pool)
            .await?;
        }
        // A device of which nothing is known may also come before the baseline. It may still be at
        // its shard as another one begins to measure.
        if claimed.is_empty() && quota.largest.is_finite() {
            claimed = sqlx::query_as(take!(
                "false",
                "select s.index ",
                takeable!("'done', 'wanted'"),
                " order by s.flops, s.index desc
                  limit 1
                  for no key update of s skip locked"
            ))
            .bind(claimant.worker)
            .bind(claimant.device)
            .bind(claimant.device_kind)
            .bind(claimant.lease.as_secs_f64())
            .bind(now)
            .bind(job.id)
            .bind(supply.rate)
            .fetch_all(&self.pool)
            .await?;
        }
        let claims = claimed.into_iter().map(|c| c.into_claim(job.id));
        claims.collect()
    }
}
