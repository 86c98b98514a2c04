//! The baseline: before anything else of a job, one device computes a sample of its shards alone.
//!
//! `wanted` until a device of the fastest kind comes, `running` while it computes, `done` for ever
//! after, with a result or without. All three are changed under the job's lock; the sample is
//! claimed as a whole in the transaction that sets `running`, so when none of its attempts is live
//! any more, none will come.

use assay_api::JobId;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{FromRow, PgConnection};

use crate::claim::{Claim, Claimant, Claimed, OpenJob, in_service, may_try, take};
use crate::rates::Pool;
use crate::rows::{bigint, count};
use crate::{Store, StoreError};

/// Seconds of work in a sample, about. Long against a claim and a commit.
const SAMPLE_SECONDS: f64 = 10.0;
/// Shards in a sample at least, where the job has as many.
const LEAST: u64 = 3;
/// Shards in a sample at most; also, the job's shards over [`PART`].
const MOST: u64 = 64;
/// See [`MOST`].
const PART: u64 = 20;
/// Shards in a sample of a device of which nothing is known.
const UNKNOWN: u64 = 8;
/// Predicted seconds from which a job's baseline is measured without being asked for.
const WORTH: f64 = 60.0;
/// Seconds after which a device that has claimed nothing new is not waited for.
const PATIENCE: f64 = 60.0;

/// What a device that computed alone did: `jobs.baseline_result`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BaselineFacts {
    /// Planned floating-point operations.
    pub(crate) flops: f64,
    /// Device seconds.
    pub(crate) seconds: f64,
    /// The device kind.
    pub(crate) device_kind: String,
    /// Tokens counted.
    pub(crate) tokens: u64,
}

/// Whether `auto` measures the baseline of a job of so many operations: on several devices, and if
/// it is long enough for the sample not to matter.
pub(crate) fn is_worth_it(flops: f64, pool: &Pool) -> Result<bool, StoreError> {
    let Some(rate) = pool.known_rate().filter(|rate| *rate > 0.0) else {
        return Ok(false);
    };
    Ok(pool.devices()? >= 2 && flops / rate >= WORTH)
}

/// Ranks, by falling operations, of a sample of `shards` shards of `flops` in all: evenly spaced,
/// so that all sizes are in it as in the job.
fn ranks(shards: u64, flops: f64, rate: Option<f64>) -> Vec<u64> {
    let most = (shards / PART).clamp(LEAST, MOST);
    let wanted = rate.map_or(UNKNOWN as f64, |rate| {
        (SAMPLE_SECONDS * rate * shards as f64 / flops).round()
    });
    // Not a number where no shard costs anything.
    let mut size = LEAST;
    while size < most && (size as f64) < wanted {
        size += 1;
    }
    let size = size.min(shards);
    (0..size)
        .map(|n| (2 * n + 1) * shards / (2 * size))
        .collect()
}

impl Store {
    /// Takes the sample, if this device is of the fastest kind that is there, or none is known.
    pub(crate) async fn claim_sample(
        &self,
        claimant: &Claimant<'_>,
        job: &OpenJob,
        pool: &Pool,
        rate: Option<f64>,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<Claim>, StoreError> {
        if pool
            .fastest()
            .is_some_and(|kind| kind != claimant.device_kind)
        {
            return Ok(Vec::new());
        }
        let Some(mut tx) = self.try_lock_running(job.id).await? else {
            return Ok(Vec::new());
        };
        let (wanted, shards, flops): (bool, i64, f64) = sqlx::query_as(
            "select coalesce(j.baseline_state = 'wanted', false), s.shards, s.flops
             from jobs j, (
                 select count(*) as shards, coalesce(sum(flops), 0) as flops from shards
                 where job_id = $1 and state = 'queued'
             ) s
             where j.id = $1",
        )
        .bind(job.id)
        .fetch_one(&mut *tx)
        .await?;
        if !wanted {
            tx.rollback().await?;
            return Ok(Vec::new());
        }
        let ranks = ranks(count(shards)?, flops, rate).into_iter();
        let claimed: Vec<Claimed> = sqlx::query_as(take!(
            "true",
            "select s.index
             from shards s join (
                 select index, row_number() over (order by flops desc, index) - 1 as rank
                 from shards where job_id = $6 and state = 'queued'
             ) r on r.index = s.index
             where s.job_id = $6 and r.rank = any($8) and ",
            in_service!(),
            " and ",
            may_try!("s.errors", "a.job_id = s.job_id and a.shard = s.index"),
            " for no key update of s skip locked"
        ))
        .bind(claimant.worker)
        .bind(claimant.device)
        .bind(claimant.device_kind)
        .bind(claimant.lease.as_secs_f64())
        .bind(now)
        .bind(job.id)
        .bind(rate)
        .bind(ranks.map(bigint).collect::<Result<Vec<_>, _>>()?)
        .fetch_all(&mut *tx)
        .await?;
        if claimed.is_empty() {
            tx.rollback().await?;
            return Ok(Vec::new());
        }
        sqlx::query("update jobs set baseline_state = 'running' where id = $1")
            .bind(job.id)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        let claims = claimed.into_iter().map(|c| c.into_claim(job.id));
        claims.collect()
    }
}

/// Ends the measuring of a job's baseline if none of its attempts is live any more, and keeps what
/// was measured. The caller holds the job's lock, and has ended an attempt; rows of `device_rates`
/// are locked last.
pub(crate) async fn settle(tx: &mut PgConnection, job: JobId) -> Result<(), StoreError> {
    // Nothing to do, nearly always: every commit asks.
    let over: bool = sqlx::query_scalar(
        "select state = 'running' and coalesce(baseline_state = 'running', false)
            and not exists (
                select from attempts a where a.job_id = $1 and a.solo and a.outcome is null
            )
         from jobs where id = $1",
    )
    .bind(job)
    .fetch_one(&mut *tx)
    .await?;
    if !over {
        return Ok(());
    }
    sqlx::query(
        "with solo as (
             select sum(s.flops) as flops, sum(a.seconds) as seconds, a.device_kind,
                    sum(s.scored_tokens) as tokens
             from attempts a join shards s on s.job_id = a.job_id and s.index = a.shard
             where a.job_id = $1 and a.solo and a.outcome = 'committed' and a.seconds > 0
             group by a.device_kind
         ), settled as (
             update jobs
             set baseline_state = 'done', baseline_result = (
                 select jsonb_build_object(
                     'flops', flops, 'seconds', seconds, 'device_kind', device_kind,
                     'tokens', tokens
                 ) from solo
             )
             where id = $1
             returning rate_key
         )
         insert into device_rates (device_kind, rate_key, flops_per_second, solo_flops_per_second)
         select device_kind, rate_key, flops / seconds, flops / seconds
         from solo, settled where rate_key is not null and flops > 0
         on conflict (device_kind, rate_key) do update
         set solo_flops_per_second = excluded.solo_flops_per_second, updated_at = now()",
    )
    .bind(job)
    .execute(&mut *tx)
    .await?;
    crate::listen::wake_workers(tx).await
}

#[derive(FromRow)]
struct Busy {
    kind: String,
    /// Seconds since the latest claim of what the device holds; null if it holds nothing.
    age: Option<f64>,
}

/// Gives the baseline of a job up while it is wanted, if every device of the fastest kind holds
/// something that it claimed long ago: plans a large job, say, or hangs. Else the job would wait
/// for it. The caller holds the job's lock.
pub(crate) async fn give_up(
    tx: &mut PgConnection,
    job: JobId,
    now: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    let rate_key: Option<Option<String>> = sqlx::query_scalar(
        "select rate_key from jobs
         where id = $1 and state = 'running' and baseline_state = 'wanted'",
    )
    .bind(job)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(rate_key) = rate_key else {
        return Ok(());
    };
    let pool = Pool::read(&mut *tx, rate_key.as_deref(), "", now).await?;
    let fastest = pool.fastest();
    let busy: Vec<Busy> = sqlx::query_as(
        "select e ->> 'kind' as kind,
                extract(epoch from coalesce($1, now()) - (
                    select max(a.started_at) from attempts a
                    where a.worker_id = w.id and a.device = e ->> 'name' and a.outcome is null
                ))::double precision as age
         from workers w cross join jsonb_array_elements(w.devices) e
         where w.stopped_at is null and w.lease_until > coalesce($1, now())
           and w.out_of_service_at is null",
    )
    .bind(now)
    .fetch_all(&mut *tx)
    .await?;
    let mut able = busy
        .iter()
        .filter(|device| fastest.is_none_or(|kind| device.kind == kind));
    let waits = able.any(|device| device.age.is_none_or(|seconds| seconds < PATIENCE));
    if waits || busy.is_empty() {
        return Ok(());
    }
    sqlx::query("update jobs set baseline_state = 'done' where id = $1")
        .bind(job)
        .execute(&mut *tx)
        .await?;
    crate::listen::wake_workers(tx).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_by_hand() {
        // Ten seconds at this rate are 20 of 1000 shards of 1 operation each.
        let even = ranks(1000, 1000.0, Some(2.0));
        assert_eq!(even.len(), 20);
        assert_eq!((even[0], even[1], even[19]), (25, 75, 975));
        assert_eq!(ranks(1000, 1000.0, Some(1e9)).len(), 50, "5 % at most");
        assert_eq!(ranks(10_000, 1e4, Some(1e9)).len(), 64);
        assert_eq!(ranks(1000, 1000.0, Some(1e-9)), [166, 500, 833]);
        assert_eq!(ranks(1000, 1000.0, None).len(), 8);
        assert_eq!(ranks(2, 2.0, Some(1.0)), [0, 1]);
        assert_eq!(ranks(1, 0.0, Some(1.0)), [0]);
    }
}
