//! What the ledger says about a finished job, by SQL of its own.

use assay_api::JobId;
use sqlx::PgConnection;

/// What must not be found of a job that has succeeded, and how to count it.
const VIOLATIONS: &[(&str, &str)] = &[
    (
        "shards without exactly one committed attempt",
        "select count(*) from shards s
         where s.job_id = $1 and 1 <> (
             select count(*) from attempts a
             where a.job_id = s.job_id and a.shard = s.index and a.outcome = 'committed'
               and a.kind <> 'audit')",
    ),
    (
        "shards that are not done by their committed attempt",
        "select count(*) from shards s
         where s.job_id = $1 and not exists (
             select from attempts a
             where a.fence = s.fence and a.shard = s.index and a.outcome = 'committed'
               and a.kind <> 'audit')",
    ),
    (
        "attempts superseded by no copy, or by nothing that was counted or taken back meanwhile",
        "select count(*) from attempts a
         where a.job_id = $1 and a.outcome = 'superseded' and not exists (
             select from attempts o
             where o.job_id = a.job_id and o.shard = a.shard and o.fence <> a.fence
               and o.outcome in ('committed', 'revoked') and o.kind <> 'audit'
               and case a.kind
                   when 'audit' then o.outcome = 'revoked'
                   else 'copy' in (a.kind, o.kind)
                       and o.started_at <= a.finished_at and a.started_at <= o.finished_at
                   end)",
    ),
    (
        "attempts at one shard that ran side by side and are not a copy or an audit",
        "select count(*) from attempts a join attempts o
             on o.job_id = a.job_id and o.shard = a.shard and o.fence > a.fence
            and o.kind = a.kind
            and o.started_at < a.finished_at and a.started_at < o.finished_at
         where a.job_id = $1",
    ),
    (
        "shards whose clusters do not hold their tokens",
        "select count(*) from shards s
         where s.job_id = $1
           and s.scored_tokens <> (select sum(t) from unnest(s.scored) t)",
    ),
    (
        "datasets whose shards do not hold the planned tokens",
        "select count(*) from datasets d
         where d.job_id = $1 and (d.scored_tokens <> d.planned_tokens or d.planned_tokens <> (
             select sum(s.scored_tokens) from shards s
             where s.job_id = d.job_id and s.dataset = d.index))",
    ),
    (
        "datasets whose documents do not hold the sums of the shards",
        "select count(*) from datasets d
         where d.job_id = $1 and (
             select sum(u) from shards s, unnest(s.units) u
             where s.job_id = d.job_id and s.dataset = d.index
         ) <> (
             select sum(n) from document_chunks c, unnest(c.nll) n
             where c.job_id = d.job_id and c.dataset = d.index)",
    ),
    (
        "shards whose audit is open",
        "select count(*) from shards s join jobs j on j.id = s.job_id
         where j.id = $1 and (j.audits_left <> 0 or s.audit in ('wanted', 'disputed'))",
    ),
    (
        "counted shards of workers out of service whose audit nobody agreed on",
        "select count(*) from shards s join jobs j on j.id = s.job_id
         join attempts a on a.fence = s.fence join workers w on w.id = a.worker_id
         where j.id = $1 and j.audit = 1 and w.out_of_service_at is not null
           and s.audit is distinct from 'agreed'",
    ),
    (
        "datasets with operations left",
        "select count(*) from datasets d
         where d.job_id = $1 and abs(d.flops_left) > 1e-6 * (
             select coalesce(sum(s.flops), 0) from shards s
             where s.job_id = d.job_id and s.dataset = d.index)",
    ),
    (
        "live attempts",
        "select count(*) from attempts where job_id = $1 and outcome is null",
    ),
    (
        "committed attempts that computed another number of tokens than they counted",
        "select count(*) from attempts a join shards s on s.fence = a.fence
         where a.job_id = $1 and a.computed_tokens <> s.scored_tokens",
    ),
];

/// Checks that every token of a job that has succeeded is counted exactly once, and answers how
/// many attempts at its shards were in vain because of a disturbance. One that another attempt at
/// the shard was quicker than is not.
pub(crate) async fn counted_once(ledger: &mut PgConnection, job: JobId) -> i64 {
    for (what, violations) in VIOLATIONS {
        let count: i64 = sqlx::query_scalar(*violations)
            .bind(job)
            .fetch_one(&mut *ledger)
            .await
            .expect("the ledger answers");
        assert_eq!(count, 0, "{what}");
    }
    sqlx::query_scalar(
        "select count(*) from attempts
         where job_id = $1 and shard is not null and outcome not in ('committed', 'superseded')",
    )
    .bind(job)
    .fetch_one(ledger)
    .await
    .expect("the ledger answers")
}
