//! The commit of a shard: one transaction that either counts everything or nothing.

use assay_api::{ErrorCode, JobError, JobId, JobState, WorkerId};
use assay_scoring::{ClusterSum, MicroBatch};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, count, int, json};
use crate::{Store, StoreError, TokenSpan, end, finish, tokens};

/// What a worker computed for a shard.
#[derive(Clone, Debug)]
pub struct ShardOutcome {
    /// Digest of the spans as computed.
    pub spans_digest: String,
    /// Exact sums by cluster.
    pub sums: Vec<ClusterSum>,
    /// The tokens that each window predicts, if the job keeps them; else empty.
    pub tokens: Vec<TokenSpan>,
    /// Device seconds.
    pub seconds: f64,
    /// Tokens scored, those thrown away included.
    pub computed_tokens: u64,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The shard's sums count, now or by an earlier call under the same fence.
    Counted,
    /// The attempt had ended: the result is dropped.
    Late,
    /// The result does not agree with the plan: the job has failed.
    Disagrees,
}

/// The attempt and its shard, locked.
#[derive(FromRow)]
struct Committing {
    shard: i32,
    outcome: Option<String>,
    worker: String,
    token_output: bool,
}

#[derive(FromRow)]
struct Planned {
    dataset: i32,
    scored_tokens: i64,
    spans_digest: String,
    /// Only if the job keeps tokens.
    micro_batches: Option<serde_json::Value>,
}

impl Store {
    /// Counts a shard: if the attempt is live its sums are stored, and its tokens if the job keeps
    /// them; the row's `shards_left` is decremented, and whoever brings it to 0 finishes the row,
    /// and then the job.
    ///
    /// A live attempt whose lease has just run out is still live until it is reaped: nobody else
    /// holds the shard, so counting it is right and saves the work.
    ///
    /// Calling it again under the same fence, after a lost answer, changes nothing.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn commit_shard(
        &self,
        worker: WorkerId,
        fence: i64,
        outcome: &ShardOutcome,
    ) -> Result<CommitOutcome, StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(CommitOutcome::Late);
        };
        let Some((mut tx, state)) = self.lock_job(job).await? else {
            return Ok(CommitOutcome::Late);
        };
        let attempt: Option<Committing> = sqlx::query_as(
            "select a.shard, a.outcome::text as outcome, w.name as worker, j.token_output
             from attempts a join workers w on w.id = a.worker_id join jobs j on j.id = a.job_id
             where a.fence = $1 and a.worker_id = $2 and a.shard is not null
             for no key update of a",
        )
        .bind(fence)
        .bind(worker)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(attempt) = attempt else {
            return Ok(CommitOutcome::Late);
        };
        if attempt.outcome.as_deref() == Some("committed") {
            return Ok(CommitOutcome::Counted);
        }
        if attempt.outcome.is_some() || state != JobState::Running {
            note_late(&mut tx, fence, outcome).await?;
            tx.commit().await?;
            return Ok(CommitOutcome::Late);
        }
        let planned: Planned = sqlx::query_as(
            "select dataset, scored_tokens, spans_digest,
                    case when $3 then micro_batches end as micro_batches
             from shards
             where job_id = $1 and index = $2 and state = 'running' for no key update",
        )
        .bind(job)
        .bind(attempt.shard)
        .bind(attempt.token_output)
        .fetch_one(&mut *tx)
        .await?;
        if let Some(detail) = disagreement(attempt.shard, &planned, outcome)? {
            let error = JobError {
                code: ErrorCode::CountsDisagree,
                detail,
                field: None,
                shard: end::location(Some(attempt.shard), &attempt.worker),
            };
            end::fail_job(&mut tx, job, &error).await?;
            tx.commit().await?;
            return Ok(CommitOutcome::Disagrees);
        }
        count_shard(&mut tx, job, attempt.shard, fence, outcome).await?;
        if attempt.token_output {
            let counted = (planned.dataset, attempt.shard, fence);
            tokens::write(&mut tx, job, counted, &outcome.tokens).await?;
        }
        let left: i32 = sqlx::query_scalar(
            "update datasets
             set shards_left = shards_left - 1, scored_tokens = scored_tokens + $3,
                 seconds = seconds + $4
             where job_id = $1 and index = $2
             returning shards_left",
        )
        .bind(job)
        .bind(planned.dataset)
        .bind(planned.scored_tokens)
        .bind(outcome.seconds)
        .fetch_one(&mut *tx)
        .await?;
        if left == 0 {
            finish::finish_dataset(&mut tx, job, planned.dataset).await?;
        }
        tx.commit().await?;
        Ok(CommitOutcome::Counted)
    }
}

/// Why the result cannot be the planned shard's, if so.
fn disagreement(
    shard: i32,
    planned: &Planned,
    outcome: &ShardOutcome,
) -> Result<Option<String>, StoreError> {
    if outcome.spans_digest != planned.spans_digest {
        return Ok(Some(format!(
            "shard {shard} was planned with spans {} and computed with spans {}",
            planned.spans_digest, outcome.spans_digest
        )));
    }
    let scored: u64 = outcome.sums.iter().map(|sum| sum.scored).sum();
    let wanted = count(planned.scored_tokens)?;
    if scored != wanted {
        return Ok(Some(format!(
            "shard {shard} was planned with {wanted} counted tokens and computed with {scored}"
        )));
    }
    let Some(micro_batches) = &planned.micro_batches else {
        return Ok(None);
    };
    let micro_batches: Vec<MicroBatch> = json(micro_batches.clone())?;
    let disagreement = tokens::disagreement(&micro_batches, &outcome.sums, &outcome.tokens);
    Ok(disagreement
        .map(|detail| format!("shard {shard} was computed otherwise than planned: {detail}")))
}

async fn count_shard(
    tx: &mut PgConnection,
    job: JobId,
    shard: i32,
    fence: i64,
    outcome: &ShardOutcome,
) -> Result<(), StoreError> {
    sqlx::query(
        "update attempts
         set outcome = 'committed', finished_at = now(), computed_tokens = $2
         where fence = $1",
    )
    .bind(fence)
    .bind(bigint(outcome.computed_tokens)?)
    .execute(&mut *tx)
    .await?;
    let sums = &outcome.sums;
    sqlx::query(
        "update shards
         set state = 'done', fence = $3, clusters = $4, units = $5, scored = $6, seconds = $7,
             committed_at = now()
         where job_id = $1 and index = $2",
    )
    .bind(job)
    .bind(shard)
    .bind(fence)
    .bind(
        sums.iter()
            .map(|s| int(s.cluster))
            .collect::<Result<Vec<_>, _>>()?,
    )
    .bind(sums.iter().map(|s| s.units).collect::<Vec<_>>())
    .bind(
        sums.iter()
            .map(|s| bigint(s.scored))
            .collect::<Result<Vec<_>, _>>()?,
    )
    .bind(outcome.seconds)
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// Keeps account of work that does not count.
async fn note_late(
    tx: &mut PgConnection,
    fence: i64,
    outcome: &ShardOutcome,
) -> Result<(), StoreError> {
    sqlx::query(
        "update attempts
         set late = true, computed_tokens = $2,
             outcome = coalesce(outcome, 'cancelled'), finished_at = coalesce(finished_at, now())
         where fence = $1",
    )
    .bind(fence)
    .bind(bigint(outcome.computed_tokens)?)
    .execute(tx)
    .await?;
    Ok(())
}
