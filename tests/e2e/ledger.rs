//! What the ledger says about a finished job, by SQL of its own.

use assay_api::JobId;
use sqlx::PgConnection;

/// Checks that every token of a job that has succeeded is counted exactly once, and answers how
/// many attempts at its shards ended otherwise than with a commit.
pub(crate) async fn counted_once(ledger: &mut PgConnection, job: JobId) -> i64 {
    for (what, violations) in [
        (
            "shards without exactly one committed attempt",
            "select count(*) from shards s
             where s.job_id = $1 and 1 <> (
                 select count(*) from attempts a
                 where a.job_id = s.job_id and a.shard = s.index and a.outcome = 'committed')",
        ),
        (
            "shards that are not done by their committed attempt",
            "select count(*) from shards s
             where s.job_id = $1 and not exists (
                 select from attempts a
                 where a.fence = s.fence and a.shard = s.index and a.outcome = 'committed')",
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
            "live attempts",
            "select count(*) from attempts where job_id = $1 and outcome is null",
        ),
        (
            "committed attempts that computed another number of tokens than they counted",
            "select count(*) from attempts a join shards s on s.fence = a.fence
             where a.job_id = $1 and a.computed_tokens <> s.scored_tokens",
        ),
    ] {
        let count: i64 = sqlx::query_scalar(violations)
            .bind(job)
            .fetch_one(&mut *ledger)
            .await
            .expect("the ledger answers");
        assert_eq!(count, 0, "{what}");
    }
    sqlx::query_scalar(
        "select count(*) from attempts
         where job_id = $1 and shard is not null and outcome <> 'committed'",
    )
    .bind(job)
    .fetch_one(ledger)
    .await
    .expect("the ledger answers")
}
