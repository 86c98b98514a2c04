//! Deletes jobs that ended long ago.

use std::time::Duration;

use assay_api::JobId;
use chrono::{DateTime, Utc};

use crate::{Store, StoreError, metrics};

/// Jobs that are deleted in one transaction. A large one takes seconds.
const BATCH: i64 = 10;

impl Store {
    /// Deletes jobs that ended before `keep` ago, with all that belongs to them but uploads, and
    /// answers how many. A job that others refer to stays as long as these: one that a gate holds
    /// another job against, and one that another job has taken numbers from.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn remove_old_jobs(
        &self,
        keep: Duration,
        now: Option<DateTime<Utc>>,
    ) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let batch = self.remove_batch(keep, now).await?;
            removed += batch;
            if batch < BATCH.unsigned_abs() {
                return Ok(removed);
            }
        }
    }

    async fn remove_batch(
        &self,
        keep: Duration,
        now: Option<DateTime<Utc>>,
    ) -> Result<u64, StoreError> {
        let mut tx = self.pool.begin().await?;
        // Who takes numbers from a job holds its row until its own transaction ends, so a row that
        // could be locked has no new reference; what came between the look and the lock is refused
        // by the foreign key, and the next round sees it.
        let jobs: Vec<JobId> = sqlx::query_scalar(
            "select j.id from jobs j
             where j.finished_at < coalesce($1, now()) - make_interval(secs => $2)
               and not exists (select from datasets d where d.reused_from = j.id)
               and not exists (select from jobs g where g.gate ->> 'baseline' = j.id::text)
               and not exists (
                   select from attempts a where a.job_id = j.id and a.outcome is null
               )
             order by j.finished_at
             limit $3
             for update skip locked",
        )
        .bind(now)
        .bind(keep.as_secs_f64())
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await?;
        if jobs.is_empty() {
            tx.rollback().await?;
            return Ok(0);
        }
        metrics::keep_counts(&mut tx, &jobs).await?;
        // Attempts refer to shards, which go with the job.
        sqlx::query("delete from attempts where job_id = any($1)")
            .bind(&jobs)
            .execute(&mut *tx)
            .await?;
        sqlx::query("delete from jobs where id = any($1)")
            .bind(&jobs)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(jobs.len() as u64)
    }
}
