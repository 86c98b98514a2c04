//! How attempts end without a commit, and when that ends the job.

use assay_api::{ErrorCode, JobError, JobId, ShardLocation, WorkerId};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, detail, to_json};
use crate::{Store, StoreError};

/// Compute errors of one shard (or of a job's planning) that fail the job.
pub const MAX_ERRORS: i32 = 2;
/// Lost attempts of one shard (or of a job's planning) that fail the job.
pub const MAX_LOSSES: i32 = 20;
/// Losses of one shard from which its worker's death is probably the shard's doing.
const SUSPICIOUS_LOSSES: i32 = 3;

/// Why a worker gave up an attempt.
#[derive(Clone, Debug)]
pub struct AttemptFailure {
    /// The code.
    pub code: ErrorCode,
    /// What happened and what to do about it.
    pub detail: String,
    /// The field of the request at fault, if one is.
    pub field: Option<String>,
    /// Another attempt would end the same way, so the job fails at once.
    pub is_final: bool,
    /// Tokens scored before the failure.
    pub computed_tokens: u64,
}

/// A lost attempt.
#[derive(FromRow)]
pub(crate) struct Loss {
    pub(crate) shard: Option<i32>,
    pub(crate) worker: String,
}

/// What a claim took hold of, gone back to the queue.
#[derive(FromRow)]
struct Ended {
    job_id: JobId,
    shard: Option<i32>,
    worker: String,
}

impl Store {
    /// Ends an attempt with an error. The shard goes back to the queue, or the job fails: at once
    /// if the error is final, else with the second error of the shard.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn fail_attempt(
        &self,
        worker: WorkerId,
        fence: i64,
        failure: &AttemptFailure,
    ) -> Result<(), StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(());
        };
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(());
        };
        let detail = detail(&failure.detail);
        let ended: Option<Ended> = sqlx::query_as(
            "update attempts a
             set outcome = 'failed', finished_at = now(), error_code = $3, error = $4,
                 computed_tokens = $5
             from workers w
             where a.fence = $1 and a.worker_id = $2 and a.outcome is null and w.id = a.worker_id
             returning a.job_id, a.shard, w.name as worker",
        )
        .bind(fence)
        .bind(worker)
        .bind(failure.code.as_str())
        .bind(&detail)
        .bind(bigint(failure.computed_tokens)?)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(ended) = ended else { return Ok(()) };
        let errors = requeue(&mut tx, &ended, Count::Error).await?;
        if failure.is_final || errors >= MAX_ERRORS {
            let error = JobError {
                code: failure.code,
                detail,
                field: failure.field.clone(),
                shard: location(ended.shard, &ended.worker),
            };
            fail_job(&mut tx, ended.job_id, &error).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Gives an attempt back, at no cost: the shard goes back to the queue.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn release_attempt(&self, worker: WorkerId, fence: i64) -> Result<(), StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(());
        };
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(());
        };
        let ended: Option<Ended> = sqlx::query_as(
            "update attempts a set outcome = 'released', finished_at = now()
             from workers w
             where a.fence = $1 and a.worker_id = $2 and a.outcome is null and w.id = a.worker_id
             returning a.job_id, a.shard, w.name as worker",
        )
        .bind(fence)
        .bind(worker)
        .fetch_optional(&mut *tx)
        .await?;
        if let Some(ended) = ended {
            requeue(&mut tx, &ended, Count::Nothing).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The job of a fence. Read without a lock: a fence never changes its job.
    pub(crate) async fn job_of(&self, fence: i64) -> Result<Option<JobId>, StoreError> {
        Ok(
            sqlx::query_scalar("select job_id from attempts where fence = $1")
                .bind(fence)
                .fetch_optional(&self.pool)
                .await?,
        )
    }
}

/// Puts a lost attempt's shard back, or fails the job after too many losses.
/// The caller holds the job's lock.
pub(crate) async fn count_loss(
    tx: &mut PgConnection,
    job: JobId,
    loss: &Loss,
) -> Result<(), StoreError> {
    let ended = Ended {
        job_id: job,
        shard: loss.shard,
        worker: loss.worker.clone(),
    };
    let losses = requeue(tx, &ended, Count::Loss).await?;
    if losses < MAX_LOSSES {
        return Ok(());
    }
    let what = ended
        .shard
        .map_or_else(|| "the planning".to_owned(), |s| format!("shard {s}"));
    let error = JobError {
        code: ErrorCode::ShardLost,
        detail: format!(
            "{losses} workers were lost while they ran {what}, last {}. Workers that die on one \
             shard again and again have probably run out of memory: look for the out-of-memory \
             killer in the kernel's log, or choose a smaller window",
            ended.worker
        ),
        field: None,
        shard: location(ended.shard, &ended.worker),
    };
    fail_job(tx, job, &error).await
}

/// The warning of a shard that lost several workers but has not failed the job.
pub(crate) fn loss_warning(shard: i32, losses: i32) -> Option<String> {
    (losses >= SUSPICIOUS_LOSSES).then(|| {
        format!(
            "shard {shard} lost {losses} workers; workers that die on one shard again and again \
             have probably run out of memory"
        )
    })
}

/// Fails a job and ends its attempts. The caller holds the job's lock.
pub(crate) async fn fail_job(
    tx: &mut PgConnection,
    job: JobId,
    error: &JobError,
) -> Result<(), StoreError> {
    sqlx::query(
        "update jobs set state = 'failed', finished_at = now(), error = $2
         where id = $1 and finished_at is null",
    )
    .bind(job)
    .bind(to_json(error)?)
    .execute(&mut *tx)
    .await?;
    end_attempts(tx, job).await
}

/// Ends the live attempts of a job that has ended. The caller holds the job's lock.
pub(crate) async fn end_attempts(tx: &mut PgConnection, job: JobId) -> Result<(), StoreError> {
    sqlx::query(
        "with live as (
             select fence from attempts where job_id = $1 and outcome is null
             order by fence for no key update
         )
         update attempts a set outcome = 'cancelled', finished_at = now()
         from live where a.fence = live.fence",
    )
    .bind(job)
    .execute(&mut *tx)
    .await?;
    sqlx::query("update shards set state = 'queued' where job_id = $1 and state = 'running'")
        .bind(job)
        .execute(&mut *tx)
        .await?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Count {
    Nothing,
    Error,
    Loss,
}

/// Puts the shard (or the planning) of an ended attempt back into the queue and counts why.
/// Answers the new count, 0 for [`Count::Nothing`].
async fn requeue(tx: &mut PgConnection, ended: &Ended, why: Count) -> Result<i32, StoreError> {
    let (error, loss) = match why {
        Count::Nothing => (0, 0),
        Count::Error => (1, 0),
        Count::Loss => (0, 1),
    };
    let counts: Option<(i32, i32)> = if let Some(shard) = ended.shard {
        sqlx::query_as(
            "update shards
             set state = 'queued', errors = errors + $3, losses = losses + $4
             where job_id = $1 and index = $2 and state = 'running'
             returning errors, losses",
        )
        .bind(ended.job_id)
        .bind(shard)
        .bind(error)
        .bind(loss)
        .fetch_optional(&mut *tx)
        .await?
    } else {
        sqlx::query_as(
            "update jobs
             set state = 'queued', plan_errors = plan_errors + $2, plan_losses = plan_losses + $3
             where id = $1 and state = 'planning'
             returning plan_errors, plan_losses",
        )
        .bind(ended.job_id)
        .bind(error)
        .bind(loss)
        .fetch_optional(&mut *tx)
        .await?
    };
    let (errors, losses) = counts.unwrap_or_default();
    crate::listen::wake_workers(tx).await?;
    Ok(match why {
        Count::Nothing => 0,
        Count::Error => errors,
        Count::Loss => losses,
    })
}

pub(crate) fn location(shard: Option<i32>, worker: &str) -> Option<ShardLocation> {
    let shard = shard.and_then(|s| u32::try_from(s).ok())?;
    Some(ShardLocation {
        shard,
        worker: worker.to_owned(),
    })
}
