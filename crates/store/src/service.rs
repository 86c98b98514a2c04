//! Workers that are given no work any more.

use assay_api::WorkerId;
use sqlx::PgConnection;

use crate::StoreError;
use crate::rows::detail;

/// Different shards and plannings that a worker fails in a row, while others succeed, before it is
/// the worker that is at fault.
const FAILURES: i64 = 3;

/// Takes a worker out of service: it claims nothing more, nothing it brings counts, and the reaper
/// ends what it holds. It comes back by being started anew.
pub(crate) async fn take_out(
    tx: &mut PgConnection,
    worker: WorkerId,
    reason: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "update workers set out_of_service_at = now(), out_of_service_reason = $2
         where id = $1 and out_of_service_at is null",
    )
    .bind(worker)
    .bind(detail(reason))
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes a worker out of service on which everything fails: different things, one after the other,
/// while another worker that is still there gets things of the same jobs done. A job in which
/// everything fails everywhere is no fault of a worker. The caller has just recorded a failure of
/// it, with this error.
pub(crate) async fn suspect(
    tx: &mut PgConnection,
    worker: WorkerId,
    error: &str,
) -> Result<(), StoreError> {
    let at_fault: bool = sqlx::query_scalar(
        "with failures as (
             select a.job_id, coalesce(a.shard, -1) as shard, a.fence from attempts a
             where a.worker_id = $1 and a.outcome = 'failed' and a.fence > coalesce((
                 select max(c.fence) from attempts c
                 where c.worker_id = $1 and c.outcome = 'committed'
             ), 0)
         )
         select count(distinct (f.job_id, f.shard)) >= $2 and exists (
             select from workers w
             where w.id <> $1 and w.stopped_at is null and w.out_of_service_at is null
               and w.lease_until > now()
               and exists (
                   select from attempts o
                   where o.worker_id = w.id and o.outcome = 'committed'
                     and o.job_id in (select job_id from failures)
                     and o.finished_at > (
                         select min(x.started_at) from attempts x
                         where x.fence = (select min(fence) from failures)
                     )
               )
         )
         from failures f",
    )
    .bind(worker)
    .bind(FAILURES)
    .fetch_one(&mut *tx)
    .await?;
    if at_fault {
        let reason = format!(
            "{FAILURES} shards or plannings failed on it in a row while other workers succeeded; \
             the last: {error}"
        );
        take_out(tx, worker, &reason).await?;
    }
    Ok(())
}
