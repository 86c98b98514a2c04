//! Ends jobs that wait or run for longer than they may.

use assay_api::{ErrorCode, JobError, JobId};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::{Store, StoreError, end};

/// Whether the job `j` is past a deadline at the time $1: `queue_seconds` after its post if nobody
/// has taken it up, `run_seconds` after that. A macro, because sqlx takes statements as literals.
macro_rules! overdue {
    () => {
        "j.finished_at is null and coalesce($1, now()) >= case
             when j.started_at is null then j.created_at + make_interval(secs => j.queue_seconds)
             else j.started_at + make_interval(secs => j.run_seconds)
         end"
    };
}

/// The deadline that a job has passed.
#[derive(FromRow)]
struct Passed {
    is_started: bool,
    seconds: Option<i32>,
}

impl Passed {
    fn error(&self) -> JobError {
        let seconds = self.seconds.unwrap_or_default();
        let (code, field, detail) = if self.is_started {
            (
                ErrorCode::RunDeadlineExceeded,
                "deadlines.run_seconds",
                format!(
                    "the job ran for longer than {seconds} s; what it has finished is in its \
                     results, and is taken over by a job that is posted again"
                ),
            )
        } else {
            (
                ErrorCode::QueueDeadlineExceeded,
                "deadlines.queue_seconds",
                format!(
                    "no worker took the job up within {seconds} s; are there enough workers, and \
                     do other jobs have a higher priority?"
                ),
            )
        };
        JobError {
            code,
            detail,
            field: Some(field.to_owned()),
            shard: None,
        }
    }
}

impl Store {
    /// Fails the jobs that are past a deadline. Several may do so at once.
    pub(crate) async fn end_overdue(&self, now: Option<DateTime<Utc>>) -> Result<(), StoreError> {
        let jobs: Vec<JobId> = sqlx::query_scalar(concat!(
            "select j.id from jobs j
             where (j.queue_seconds is not null or j.run_seconds is not null) and ",
            overdue!(),
            " order by j.id"
        ))
        .bind(now)
        .fetch_all(&self.pool)
        .await?;
        for job in jobs {
            let Some((mut tx, _)) = self.lock_job(job).await? else {
                continue;
            };
            // Read again under the job's lock: it may have ended, or been taken up, meanwhile.
            let passed: Option<Passed> = sqlx::query_as(concat!(
                "select j.started_at is not null as is_started,
                        case when j.started_at is null then j.queue_seconds else j.run_seconds end
                            as seconds
                 from jobs j where j.id = $2 and ",
                overdue!()
            ))
            .bind(now)
            .bind(job)
            .fetch_optional(&mut *tx)
            .await?;
            match passed {
                Some(passed) => {
                    end::fail_job(&mut tx, job, &passed.error()).await?;
                    tx.commit().await?;
                }
                None => tx.rollback().await?,
            }
        }
        Ok(())
    }
}
