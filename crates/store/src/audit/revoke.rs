//! Taking back what a worker counted that was found to compute wrong numbers.

use assay_api::{JobId, WorkerId};
use sqlx::PgConnection;

use super::agreed_elsewhere;
use crate::StoreError;

/// Takes back what a worker counted for a job, but for what another worker agreed on; and opens
/// again the audits that it had a part in. The caller holds the job's lock and has taken the worker
/// out of service: its live attempts are refused at their commit, and the reaper ends them.
///
/// No row of the job has finished: an audit is left.
pub(super) async fn revoke(
    tx: &mut PgConnection,
    job: JobId,
    worker: WorkerId,
) -> Result<(), StoreError> {
    // Locked in a statement of its own, before audits of them are looked for: who claims one holds
    // the shard's row, but not the job's. Statements after this one see every such claim.
    let shards: Vec<i32> = sqlx::query_scalar(concat!(
        "select s.index from shards s join attempts a on a.fence = s.fence
         where s.job_id = $1 and s.state = 'done' and a.worker_id = $2 and not coalesce(",
        agreed_elsewhere!(),
        ", false)
         order by s.index
         for no key update of s",
    ))
    .bind(job)
    .bind(worker)
    .fetch_all(&mut *tx)
    .await?;
    requeue(tx, job, &shards).await?;
    // Disputes in which it was the auditor: what counts waits for another opinion. Where there is
    // one already, the dispute goes on.
    sqlx::query(
        "with revoked as (
             update attempts a set outcome = 'revoked'
             from shards s
             where a.job_id = $1 and a.worker_id = $2 and a.kind = 'audit'
               and a.outcome = 'committed' and s.job_id = $1 and s.index = a.shard
               and s.state = 'done' and s.audit = 'disputed' and a.fence > s.fence
             returning a.shard, a.fence
         )
         update shards s set audit = 'wanted'
         from revoked r
         where s.job_id = $1 and s.index = r.shard and not exists (
             select from attempts a
             where a.job_id = $1 and a.shard = s.index and a.kind = 'audit'
               and a.outcome = 'committed' and a.fence > s.fence and a.fence <> r.fence
         )",
    )
    .bind(job)
    .bind(worker)
    .execute(&mut *tx)
    .await?;
    crate::listen::wake_workers(tx).await
}

/// Puts counted shards back into the queue, as if they had never been counted; audits that their
/// own worker agreed to are open again. The caller holds the locks of the job and of the shards.
///
/// Their audits end with the count that they are about: a result of one that is live now is late,
/// and one that has committed has a smaller fence than what will be counted.
async fn requeue(tx: &mut PgConnection, job: JobId, shards: &[i32]) -> Result<(), StoreError> {
    sqlx::query(
        "update attempts a
         set outcome = case when a.outcome is null then 'superseded' else 'revoked' end
                 ::attempt_outcome,
             finished_at = coalesce(a.finished_at, clock_timestamp())
         from shards s
         where s.job_id = $1 and s.index = any($2) and a.job_id = $1 and a.shard = s.index
           and (a.fence = s.fence or a.kind = 'audit' and a.outcome is null)",
    )
    .bind(job)
    .bind(shards)
    .execute(&mut *tx)
    .await?;
    // They refer to the fence that is taken from the shard below.
    sqlx::query("delete from token_spans where job_id = $1 and shard = any($2)")
        .bind(job)
        .bind(shards)
        .execute(&mut *tx)
        .await?;
    sqlx::query(
        "with counted as (
             select index, dataset, scored_tokens, seconds, flops, audit from shards
             where job_id = $1 and index = any($2)
         ), opened as (
             update jobs
             set audits_left = audits_left + (select count(*) from counted where audit = 'agreed')
             where id = $1
         ), queued as (
             update shards
             set state = 'queued', fence = null, clusters = null, units = null, scored = null,
                 seconds = null, committed_at = null,
                 audit = case when audit in ('disputed', 'agreed') then 'wanted' else audit end
             where job_id = $1 and index = any($2)
         )
         update datasets d
         set shards_left = d.shards_left + c.shards, scored_tokens = d.scored_tokens - c.tokens,
             seconds = greatest(d.seconds - c.seconds, 0), flops_left = d.flops_left + c.flops
         from (
             select dataset, count(*)::integer as shards, sum(scored_tokens)::bigint as tokens,
                    sum(seconds) as seconds, sum(flops) as flops
             from counted group by dataset
         ) c
         where d.job_id = $1 and d.index = c.dataset",
    )
    .bind(job)
    .bind(shards)
    .execute(&mut *tx)
    .await?;
    Ok(())
}
