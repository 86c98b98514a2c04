//! How attempts end without a commit, and when that ends the job.

use assay_api::{Dtype, ErrorCode, JobError, JobId, ShardLocation, WorkerId};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, detail, to_json};
use crate::{ShardOutcome, Store, StoreError, audit, baseline, service};

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

/// An attempt that has just ended without a commit.
#[derive(FromRow)]
pub(crate) struct Ended {
    pub(crate) shard: Option<i32>,
    pub(crate) kind: String,
    pub(crate) worker: String,
}

impl Ended {
    /// The shard of an audit: what counts is not touched by its end.
    fn audited(&self) -> Option<i32> {
        self.shard.filter(|_| self.kind == "audit")
    }
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
             set outcome = 'failed', finished_at = clock_timestamp(), error_code = $3, error = $4,
                 computed_tokens = $5
             from workers w
             where a.fence = $1 and a.worker_id = $2 and a.outcome is null and w.id = a.worker_id
             returning a.shard, a.kind::text as kind, w.name as worker",
        )
        .bind(fence)
        .bind(worker)
        .bind(failure.code.as_str())
        .bind(&detail)
        .bind(bigint(failure.computed_tokens)?)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(ended) = ended else {
            tx.rollback().await?;
            return Ok(());
        };
        // An audit that fails says nothing of the shard, which has been computed: it is left to
        // another worker.
        let errors = match ended.audited() {
            Some(_) => {
                crate::listen::wake_workers(&mut tx).await?;
                0
            }
            None => requeue(&mut tx, job, &ended, Count::Error).await?,
        };
        if failure.is_final && ended.audited().is_none() || errors >= MAX_ERRORS {
            let error = JobError {
                code: failure.code,
                detail,
                field: failure.field.clone(),
                shard: location(ended.shard, &ended.worker),
            };
            fail_job(&mut tx, job, &error).await?;
        } else {
            service::suspect(&mut tx, worker, &detail).await?;
            settle(&mut tx, job).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Gives an attempt back, at no cost: the shard goes back to the queue. `computed_tokens` is
    /// what it computed in vain, which is noted also if the attempt has ended without us.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn release_attempt(
        &self,
        worker: WorkerId,
        fence: i64,
        computed_tokens: u64,
    ) -> Result<(), StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(());
        };
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(());
        };
        let ended: Option<Ended> = sqlx::query_as(
            "update attempts a
             set outcome = 'released', finished_at = clock_timestamp(), computed_tokens = $3
             from workers w
             where a.fence = $1 and a.worker_id = $2 and a.outcome is null and w.id = a.worker_id
             returning a.shard, a.kind::text as kind, w.name as worker",
        )
        .bind(fence)
        .bind(worker)
        .bind(bigint(computed_tokens)?)
        .fetch_optional(&mut *tx)
        .await?;
        if let Some(ended) = ended {
            put_back(&mut tx, job, &[ended.shard]).await?;
            settle(&mut tx, job).await?;
        } else {
            sqlx::query(
                "update attempts set computed_tokens = greatest(computed_tokens, $3)
                 where fence = $1 and worker_id = $2 and outcome <> 'committed'",
            )
            .bind(fence)
            .bind(worker)
            .bind(bigint(computed_tokens)?)
            .execute(&mut *tx)
            .await?;
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
    ended: &Ended,
) -> Result<(), StoreError> {
    if let Some(shard) = ended.audited() {
        return audit::count_loss(tx, job, shard).await;
    }
    let losses = requeue(tx, job, ended, Count::Loss).await?;
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
        "update jobs set state = 'failed', finished_at = clock_timestamp(), error = $2
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
         update attempts a set outcome = 'cancelled', finished_at = clock_timestamp()
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

/// What ended attempts of a running job may have left behind: a baseline that nobody measures any
/// more, audits that nobody is there for. The caller holds the job's lock.
async fn settle(tx: &mut PgConnection, job: JobId) -> Result<(), StoreError> {
    audit::sweep(tx, job).await?;
    baseline::settle(tx, job).await
}

/// Keeps account of work that does not count, and ends its attempt so if it is live.
pub(crate) async fn note_late(
    tx: &mut PgConnection,
    fence: i64,
    end: &str,
    outcome: &ShardOutcome,
) -> Result<(), StoreError> {
    sqlx::query(
        "update attempts
         set late = true, computed_tokens = $2, seconds = $4, dtype = $5, compared_tokens = $6,
             difference = $7, difference_squares = $8,
             outcome = coalesce(outcome, $3::attempt_outcome),
             finished_at = coalesce(finished_at, clock_timestamp())
         where fence = $1",
    )
    .bind(fence)
    .bind(bigint(outcome.computed_tokens)?)
    .bind(end)
    .bind(outcome.seconds)
    .bind(outcome.dtype.map(Dtype::as_str))
    .bind(outcome.compared.map(|c| bigint(c.tokens)).transpose()?)
    .bind(outcome.compared.map(|c| c.difference))
    .bind(outcome.compared.map(|c| c.squares))
    .execute(tx)
    .await?;
    Ok(())
}

#[derive(Clone, Copy)]
enum Count {
    Error,
    Loss,
}

/// Puts back what an attempt held that has just ended, and counts why. Answers the new count.
async fn requeue(
    tx: &mut PgConnection,
    job: JobId,
    ended: &Ended,
    why: Count,
) -> Result<i32, StoreError> {
    let (error, loss) = match why {
        Count::Error => (1, 0),
        Count::Loss => (0, 1),
    };
    let counts: Option<(i32, i32)> = if let Some(shard) = ended.shard {
        sqlx::query_as(
            "update shards set errors = errors + $3, losses = losses + $4
             where job_id = $1 and index = $2 and state = 'running'
             returning errors, losses",
        )
        .bind(job)
        .bind(shard)
        .bind(error)
        .bind(loss)
        .fetch_optional(&mut *tx)
        .await?
    } else {
        sqlx::query_as(
            "update jobs set plan_errors = plan_errors + $2, plan_losses = plan_losses + $3
             where id = $1 and state = 'planning'
             returning plan_errors, plan_losses",
        )
        .bind(job)
        .bind(error)
        .bind(loss)
        .fetch_optional(&mut *tx)
        .await?
    };
    put_back(tx, job, &[ended.shard]).await?;
    let (errors, losses) = counts.unwrap_or_default();
    Ok(match why {
        Count::Error => errors,
        Count::Loss => losses,
    })
}

/// Puts back what attempts held that have ended: shards (without another live attempt), and the
/// planning (no shard). The caller holds the job's lock.
pub(crate) async fn put_back(
    tx: &mut PgConnection,
    job: JobId,
    shards: &[Option<i32>],
) -> Result<(), StoreError> {
    sqlx::query(
        "update shards s set state = 'queued'
         where s.job_id = $1 and s.index = any($2) and s.state = 'running'
           and not exists (
               select from attempts a
               where a.job_id = s.job_id and a.shard = s.index
                 and a.outcome is null and a.kind <> 'audit'
           )",
    )
    .bind(job)
    .bind(shards)
    .execute(&mut *tx)
    .await?;
    if shards.contains(&None) {
        sqlx::query("update jobs set state = 'queued' where id = $1 and state = 'planning'")
            .bind(job)
            .execute(&mut *tx)
            .await?;
    }
    crate::listen::wake_workers(tx).await
}

pub(crate) fn location(shard: Option<i32>, worker: &str) -> Option<ShardLocation> {
    let shard = shard.and_then(|s| u32::try_from(s).ok())?;
    Some(ShardLocation {
        shard,
        worker: worker.to_owned(),
    })
}
