//! Audits: counted shards that another worker computed again.
//!
//! Two workers that agree are believed. Where they do not, a third decides: the one it does not
//! agree with is taken out of service, and what it counted for the job is computed again. Without
//! a third there is no majority, and the job fails (E3003). All of it happens under the job's
//! lock, and no row of the job finishes before its last audit, so that everything can still be
//! taken back.

mod opinion;
mod revoke;

/// Whether another worker agreed on the shard `s`, which the attempt `a` counted. An audit by
/// another device of the same worker does not show that its host is sound. A macro, because sqlx
/// takes statements as literals only.
macro_rules! agreed_elsewhere {
    () => {
        "(s.audit = 'agreed' and exists (
            select from attempts o
            where o.job_id = s.job_id and o.shard = s.index and o.kind = 'audit'
              and o.outcome = 'committed' and o.fence > s.fence and o.worker_id <> a.worker_id
        ))"
    };
}
pub(crate) use agreed_elsewhere;

use assay_api::{Dtype, ErrorCode, JobError, JobId};
use sqlx::{FromRow, PgConnection, PgExecutor, PgPool};

use crate::claim::may_audit;
use crate::commit::Committing;
use crate::rows::parse;
use crate::{ShardOutcome, StoreError, end, finish, service};
use opinion::Opinion;

/// Lost audits of one shard from which nobody tries again: it takes its workers down.
const MOST_LOST: i64 = 3;

#[derive(FromRow)]
struct Counted {
    dtype: String,
    #[sqlx(flatten)]
    opinion: Opinion,
}

/// What counts of a shard whose audit is open, what its auditors said before, and the dtype. None
/// if it is not counted, or its audit has ended.
async fn opinions(
    tx: &mut PgConnection,
    job: JobId,
    shard: i32,
    before: Option<i64>,
) -> Result<Option<(Opinion, Vec<Opinion>, Dtype)>, StoreError> {
    // An audit that is older than the count would be one of an earlier count: see `revoke`.
    let counted: Option<Counted> = sqlx::query_as(
        "select j.dtype, c.worker_id, w.name as worker, c.device, c.device_kind,
                c.dtype as own_dtype, s.split_depth, s.clusters, s.units, s.scored
         from shards s
         join jobs j on j.id = s.job_id
         join attempts c on c.fence = s.fence
         join workers w on w.id = c.worker_id
         where s.job_id = $1 and s.index = $2 and s.state = 'done'
           and s.audit in ('wanted', 'disputed') and ($3::bigint is null or s.fence < $3)",
    )
    .bind(job)
    .bind(shard)
    .bind(before)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(counted) = counted else {
        return Ok(None);
    };
    let audits = sqlx::query_as(
        "select a.worker_id, w.name as worker, a.device, a.device_kind,
                a.dtype as own_dtype, a.split_depth, a.clusters, a.units, a.scored
         from attempts a
         join workers w on w.id = a.worker_id
         join shards s on s.job_id = a.job_id and s.index = a.shard
         where a.job_id = $1 and a.shard = $2 and a.kind = 'audit' and a.outcome = 'committed'
           and a.fence > s.fence and a.fence is distinct from $3
         order by a.fence",
    )
    .bind(job)
    .bind(shard)
    .bind(before)
    .fetch_all(tx)
    .await?;
    Ok(Some((counted.opinion, audits, parse(counted.dtype)?)))
}

/// Compares the result of an audit, whose attempt the caller has just committed, with what counts.
/// The caller holds the job's lock and the shard's.
pub(crate) async fn compare(
    tx: &mut PgConnection,
    job: JobId,
    auditing: &Committing,
    outcome: &ShardOutcome,
) -> Result<(), StoreError> {
    let shard = auditing.shard;
    let opinions = opinions(tx, job, shard, Some(auditing.fence)).await?;
    let Some((first, audits, dtype)) = opinions else {
        return Ok(());
    };
    let newest = Opinion::of(auditing, outcome)?;
    let agrees = newest.agrees(&first, dtype);
    let second = audits.iter().find(|audit| !audit.agrees(&first, dtype));
    let Some(second) = second else {
        if agrees {
            return settle(tx, job, &[shard], "agreed").await;
        }
        return dispute(tx, job, shard).await;
    };
    let (odd, other) = match (agrees, newest.agrees(second, dtype)) {
        // Of another kind than both, and near both. If they are of one kind, one of them is wrong
        // nevertheless, which only bits can tell: that takes a worker of their kind.
        (true, true) if first.is_comparable(second) => return dispute(tx, job, shard).await,
        (true, true) => return settle(tx, job, &[shard], "agreed").await,
        (true, false) => (second, &first),
        (false, true) => (&first, second),
        (false, false) => {
            let detail = format!(
                "the workers {}, {} and {} computed three different results for shard {shard}: \
                 between the first two {}. None of them can be believed: look for faulty memory or \
                 devices on these hosts",
                first.who(),
                second.who(),
                newest.who(),
                first.difference(second)
            );
            return fail(tx, job, shard, &newest.worker, detail).await;
        }
    };
    let reason = format!(
        "audit of job {job}, shard {shard}: {} and {} agree and {} does not: {}",
        other.who(),
        newest.who(),
        odd.who(),
        odd.difference(other)
    );
    if odd.worker_id != first.worker_id {
        settle(tx, job, &[shard], "agreed").await?;
    }
    service::take_out(tx, odd.worker_id, &reason).await?;
    revoke::revoke(tx, job, odd.worker_id).await?;
    // There is one worker less to decide other disputes.
    sweep(tx, job).await
}

/// Ends audits as agreed or waived.
async fn settle(
    tx: &mut PgConnection,
    job: JobId,
    shards: &[i32],
    how: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "with settled as (
             update shards set audit = $3::audit_state
             where job_id = $1 and index = any($2) and audit in ('wanted', 'disputed')
             returning 1
         )
         update jobs set audits_left = audits_left - (select count(*) from settled)::integer
         where id = $1",
    )
    .bind(job)
    .bind(shards)
    .bind(how)
    .execute(tx)
    .await?;
    Ok(())
}

/// Waits for another opinion, or fails the job if there can be none.
async fn dispute(tx: &mut PgConnection, job: JobId, shard: i32) -> Result<(), StoreError> {
    sqlx::query("update shards set audit = 'disputed' where job_id = $1 and index = $2")
        .bind(job)
        .bind(shard)
        .execute(&mut *tx)
        .await?;
    sweep(tx, job).await?;
    crate::listen::wake_workers(tx).await
}

async fn fail(
    tx: &mut PgConnection,
    job: JobId,
    shard: i32,
    worker: &str,
    detail: String,
) -> Result<(), StoreError> {
    let error = JobError {
        code: ErrorCode::AuditDisagrees,
        detail,
        field: None,
        shard: end::location(Some(shard), worker),
    };
    end::fail_job(tx, job, &error).await
}

#[derive(FromRow)]
struct Stuck {
    index: i32,
    disputed: bool,
}

/// Ends the audits that no worker is there for: a dispute without a third worker fails the job;
/// what nobody else can audit is waived, once the job has nothing else to do. The caller holds the
/// job's lock.
pub(crate) async fn sweep(tx: &mut PgConnection, job: JobId) -> Result<(), StoreError> {
    if !may_wait(tx, job).await? || stuck(&mut *tx, job).await?.is_empty() {
        return Ok(());
    }
    // Who claims an audit holds the shard's row, but not the job's. Once these rows are had, every
    // such claim is seen, and there comes no other.
    sqlx::query(
        "select from shards
         where job_id = $1 and state = 'done' and audit in ('wanted', 'disputed')
         order by index for no key update",
    )
    .bind(job)
    .execute(&mut *tx)
    .await?;
    let (disputed, wanted): (Vec<Stuck>, Vec<Stuck>) = stuck(&mut *tx, job)
        .await?
        .into_iter()
        .partition(|stuck| stuck.disputed);
    let why = "No other worker is there that could decide which one is wrong";
    for shard in disputed {
        if no_majority(tx, job, shard.index, why).await? {
            return Ok(());
        }
    }
    let wanted: Vec<i32> = wanted.iter().map(|stuck| stuck.index).collect();
    settle(tx, job, &wanted, "waived").await?;
    finish::finish_ready(tx, job).await
}

/// Whether the job may have an audit that no worker is there for: a dispute, or nothing left to do
/// but audits. Every commit asks, so no shard that is only to be audited is looked at.
async fn may_wait(tx: &mut PgConnection, job: JobId) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar(
        "select state = 'running' and audits_left > 0 and (
             not exists (select from datasets where job_id = $1 and shards_left > 0)
             or exists (
                 select from shards where job_id = $1 and state = 'done' and audit = 'disputed'
             )
         )
         from jobs where id = $1",
    )
    .bind(job)
    .fetch_one(tx)
    .await?)
}

/// Whether [`sweep`] has anything to do, asked without a lock.
pub(crate) async fn is_stuck(pool: &PgPool, job: JobId) -> Result<bool, StoreError> {
    Ok(!stuck(pool, job).await?.is_empty())
}

/// Open audits that nobody is at, and that no device of a live worker in service may take; of
/// those that are only wanted none while the job has shards to be computed, whose workers may
/// still come. A worker that is silent may come back for a minute: after an outage of the database
/// all of them are.
async fn stuck(executor: impl PgExecutor<'_>, job: JobId) -> Result<Vec<Stuck>, StoreError> {
    Ok(sqlx::query_as(concat!(
        "select s.index, s.audit = 'disputed' as disputed from shards s
         where s.job_id = $1 and s.state = 'done'
           and (s.audit = 'disputed' or s.audit = 'wanted' and not exists (
               select from datasets d where d.job_id = $1 and d.shards_left > 0
           ))
           and not exists (
               select from attempts a
               where a.job_id = s.job_id and a.shard = s.index and a.kind = 'audit'
                 and a.outcome is null
           )
           and not exists (
               select from workers v cross join jsonb_array_elements(v.devices) e
               where v.stopped_at is null and v.out_of_service_at is null
                 and v.lease_until > now() - interval '1 minute' and ",
        may_audit!("v.id", "(e ->> 'name')", "null::timestamptz"),
        ")
         order by s.index"
    ))
    .bind(job)
    .fetch_all(executor)
    .await?)
}

/// Fails the job for a dispute that nobody will decide, and answers true; unless those who are
/// left of it agree.
async fn no_majority(
    tx: &mut PgConnection,
    job: JobId,
    shard: i32,
    why: &str,
) -> Result<bool, StoreError> {
    let Some((first, audits, dtype)) = opinions(tx, job, shard, None).await? else {
        return Ok(false);
    };
    let Some(second) = audits.iter().find(|audit| !audit.agrees(&first, dtype)) else {
        settle(tx, job, &[shard], "agreed").await?;
        return Ok(false);
    };
    let detail = format!(
        "the workers {} and {} computed different results for shard {shard}: {}. {why}: start \
         another one of their device kind and submit the job anew, or look for faulty memory or \
         devices on the two hosts",
        first.who(),
        second.who(),
        first.difference(second)
    );
    fail(tx, job, shard, &second.worker, detail).await?;
    Ok(true)
}

/// Gives the audit of a shard up that lost its worker again and again: waives it, or fails the job
/// if it was to decide a dispute. The caller holds the job's lock.
pub(crate) async fn count_loss(
    tx: &mut PgConnection,
    job: JobId,
    shard: i32,
) -> Result<(), StoreError> {
    let lost: i64 = sqlx::query_scalar(
        "select count(*) from attempts a join shards s on s.job_id = a.job_id and s.index = a.shard
         where a.job_id = $1 and a.shard = $2 and a.kind = 'audit' and a.outcome = 'lost'
           and a.fence > s.fence and s.audit in ('wanted', 'disputed')",
    )
    .bind(job)
    .bind(shard)
    .fetch_one(&mut *tx)
    .await?;
    if lost < MOST_LOST {
        return crate::listen::wake_workers(tx).await;
    }
    let disputed: bool = sqlx::query_scalar(
        "select audit = 'disputed' from shards where job_id = $1 and index = $2 for no key update",
    )
    .bind(job)
    .bind(shard)
    .fetch_one(&mut *tx)
    .await?;
    let why = "The workers that were to decide which one is wrong were lost";
    if disputed && no_majority(tx, job, shard, why).await? {
        return Ok(());
    }
    settle(tx, job, &[shard], "waived").await?;
    finish::finish_ready(tx, job).await
}
