//! Claims of counted shards that another worker is to compute again.

use chrono::{DateTime, Utc};

use super::shard::{Claimed, seconds_of};
use super::{Claim, Claimant, OpenJob, in_service};
use crate::rates::Pool;
use crate::{Store, StoreError};

/// How often another shard is looked for after somebody else was quicker.
const TRIES: u32 = 4;

/// Whether worker `$worker` may audit shard `s` with device `$device` at the time `$now`: the
/// shard is counted and waits for it, nobody audits it right now, and the worker neither counted
/// it nor audited it since it was counted. Where no other worker is live and in service, another
/// device of the worker that counted it will do.
///
/// A worker that failed to audit it does not get it again: unlike a shard that must be computed,
/// an audit can be waived.
macro_rules! may_audit {
    ($worker:literal, $device:literal, $now:literal) => {
        concat!(
            "s.state = 'done' and s.audit in ('wanted', 'disputed')
             and not exists (
                 select from attempts a
                 where a.job_id = s.job_id and a.shard = s.index and a.kind = 'audit'
                   and (a.outcome is null or (
                       a.worker_id = ",
            $worker,
            " and a.fence > s.fence and a.outcome in ('committed', 'failed')
                   ))
             )
             and not exists (
                 select from attempts a
                 where a.fence = s.fence and a.worker_id = ",
            $worker,
            "
                   and (a.device = ",
            $device,
            " or exists (
                       select from workers w
                       where w.id <> ",
            $worker,
            " and w.stopped_at is null and w.out_of_service_at is null
                         and w.lease_until > coalesce(",
            $now,
            ", now())
                   ))
             )"
        )
    };
}

pub(crate) use may_audit;

impl Store {
    /// Takes hold of a counted shard of the job to compute it again.
    pub(super) async fn claim_audit(
        &self,
        claimant: &Claimant<'_>,
        job: &OpenJob,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<Claim>, StoreError> {
        for _ in 0..TRIES {
            // Two statements: the second one sees what was committed before the lock was had. An
            // audit that came and went between the first one's snapshot and its lock leaves the
            // shard as it was, but not its attempts.
            let mut tx = self.pool.begin().await?;
            let index: Option<i32> = sqlx::query_scalar(concat!(
                "select s.index
                 from shards s join jobs j on j.id = s.job_id
                 where s.job_id = $4 and j.state = 'running' and ",
                may_audit!("$1", "$2", "$3"),
                " order by s.index
                  limit 1
                  for no key update of s skip locked"
            ))
            .bind(claimant.worker)
            .bind(claimant.device)
            .bind(now)
            .bind(job.id)
            .fetch_optional(&mut *tx)
            .await?;
            let Some(index) = index else {
                tx.rollback().await?;
                return Ok(None);
            };
            let (key, kind) = (job.rate_key.as_deref(), claimant.device_kind);
            let rate = match claimant.own_rate(key) {
                Some(rate) => Some(rate),
                None => Pool::read(&mut *tx, key, kind, now).await?.rate_of(kind),
            };
            let claimed: Option<Claimed> = sqlx::query_as(concat!(
                "with shard as (
                     select s.index, s.dataset, s.micro_batches, s.spans_digest, s.flops,
                            s.split_depth
                     from shards s join jobs j on j.id = s.job_id
                     where s.job_id = $6 and s.index = $8 and j.state = 'running' and ",
                in_service!(),
                " and ",
                may_audit!("$1", "$2", "$5"),
                "), attempt as (
                     insert into attempts
                         (job_id, shard, kind, worker_id, device, device_kind, started_at,
                          lease_until, expected_at)
                     select $6, index, 'audit', $1, $2, $3, coalesce($5, now()),
                            coalesce($5, now()) + make_interval(secs => $4),
                            coalesce($5, now()) + make_interval(secs => ",
                seconds_of!("flops"),
                ")
                     from shard
                     returning fence
                 )
                 select attempt.fence, 'audit' as kind, shard.* from attempt, shard"
            ))
            .bind(claimant.worker)
            .bind(claimant.device)
            .bind(claimant.device_kind)
            .bind(claimant.lease.as_secs_f64())
            .bind(now)
            .bind(job.id)
            .bind(rate)
            .bind(index)
            .fetch_optional(&mut *tx)
            .await?;
            if let Some(claimed) = claimed {
                tx.commit().await?;
                return Ok(Some(claimed.into_claim(job.id)?));
            }
            tx.rollback().await?;
        }
        Ok(None)
    }
}
