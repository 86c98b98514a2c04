//! Claims of running shards that another device is slow with.
//!
//! Whichever attempt ends first counts, and ends the others. Copies are for devices that find
//! nothing else, so they are few; they are made under the job's lock, as attempts are ended. So
//! whoever counts a shard sees every attempt at it.

use assay_api::JobId;
use assay_scoring::{COPY_GAIN, still_needs};
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgExecutor};

use super::shard::{Claimed, seconds_of};
use super::{Claim, Claimant, in_service, may_try};
use crate::{Store, StoreError};

/// A running shard with one live attempt, of another device.
#[derive(FromRow)]
struct Running {
    job_id: JobId,
    shard: i32,
    flops: f64,
    rate_key: Option<String>,
    /// The ledger's rate of the claimant's device kind.
    kind_rate: Option<f64>,
    /// Of the attempt, by the ledger's clock, in seconds.
    now: f64,
    started: f64,
    expected: Option<f64>,
}

/// A copy that pays.
struct Copy {
    job: JobId,
    shard: i32,
    rate: f64,
    /// Seconds that the running attempt still needs.
    needs: f64,
}

impl Store {
    /// Takes hold of a running shard that this device would finish sooner; of the first job that
    /// has one, that which its device still needs longest for.
    pub(super) async fn claim_copy(
        &self,
        claimant: &Claimant<'_>,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<Claim>, StoreError> {
        // Looked for without a lock, for in most cases none pays.
        let Some(copy) = find(&self.pool, claimant, None, now).await? else {
            return Ok(None);
        };
        let Some(mut tx) = self.try_lock_running(copy.job).await? else {
            return Ok(None);
        };
        let Some(copy) = find(&mut *tx, claimant, Some(copy.job), now).await? else {
            tx.rollback().await?;
            return Ok(None);
        };
        // Where the primary attempt was lost and a copy runs on, the new one is the primary.
        let claimed: Option<Claimed> = sqlx::query_as(concat!(
            "with shard as (
                 select s.index, s.dataset, s.micro_batches, s.spans_digest, s.flops, s.split_depth,
                        case a.kind when 'copy' then 'primary' else 'copy' end::attempt_kind as kind
                 from shards s join attempts a on a.job_id = s.job_id and a.shard = s.index
                 where s.job_id = $6 and s.index = $8 and s.state = 'running'
                   and a.outcome is null and a.kind <> 'audit' and ",
            in_service!(),
            "), attempt as (
                 insert into attempts
                     (job_id, shard, kind, worker_id, device, device_kind, started_at,
                      lease_until, expected_at)
                 select $6, index, kind, $1, $2, $3, coalesce($5, now()),
                        coalesce($5, now()) + make_interval(secs => $4),
                        coalesce($5, now()) + make_interval(secs => ",
            seconds_of!("flops"),
            ")
                 from shard
                 returning fence
             )
             select attempt.fence, shard.kind::text as kind, shard.index, shard.dataset,
                    shard.micro_batches, shard.spans_digest, shard.flops, shard.split_depth
             from attempt, shard"
        ))
        .bind(claimant.worker)
        .bind(claimant.device)
        .bind(claimant.device_kind)
        .bind(claimant.lease.as_secs_f64())
        .bind(now)
        .bind(copy.job)
        .bind(copy.rate)
        .bind(copy.shard)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(claimed) = claimed else {
            tx.rollback().await?;
            return Ok(None);
        };
        tx.commit().await?;
        Ok(Some(claimed.into_claim(copy.job)?))
    }
}

/// The copy that pays most, in the first of the jobs (or in this one) that has one that pays.
async fn find(
    executor: impl PgExecutor<'_>,
    claimant: &Claimant<'_>,
    job: Option<JobId>,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Copy>, StoreError> {
    let running: Vec<Running> = sqlx::query_as(concat!(
        "select a.job_id, a.shard, s.flops, j.rate_key, r.flops_per_second as kind_rate,
                extract(epoch from coalesce($5, now()))::double precision as now,
                extract(epoch from a.started_at)::double precision as started,
                extract(epoch from a.expected_at)::double precision as expected
         from jobs j
         join attempts a on a.job_id = j.id
         join shards s on s.job_id = a.job_id and s.index = a.shard
         left join device_rates r on r.device_kind = $3 and r.rate_key = j.rate_key
         where j.state = 'running' and coalesce(j.baseline_state, 'done') = 'done'
           and ($4::uuid is null or j.id = $4)
           and a.outcome is null and a.kind in ('primary', 'copy')
           and (a.worker_id <> $1 or a.device <> $2)
           and s.state = 'running'
           and not exists (
               select from attempts o
               where o.job_id = a.job_id and coalesce(o.shard, -1) = a.shard
                 and o.outcome is null and o.kind in ('primary', 'copy') and o.fence <> a.fence
           )
           and ",
        may_try!("s.errors", "a.job_id = s.job_id and a.shard = s.index"),
        " order by j.rank desc, j.id"
    ))
    .bind(claimant.worker)
    .bind(claimant.device)
    .bind(claimant.device_kind)
    .bind(job)
    .bind(now)
    .fetch_all(executor)
    .await?;
    let paying = running.into_iter().filter_map(|running| {
        let own = claimant.own_rate(running.rate_key.as_deref());
        let rate = own.or(running.kind_rate)?;
        let needs = still_needs(running.now, running.started, running.expected);
        (running.flops / rate < COPY_GAIN * needs).then_some(Copy {
            job: running.job_id,
            shard: running.shard,
            rate,
            needs,
        })
    });
    // Of the first job; among equals the first.
    Ok(paying.reduce(|best, next| {
        let better = next.job == best.job && next.needs > best.needs;
        if better { next } else { best }
    }))
}
