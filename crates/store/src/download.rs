//! How far the worker that plans a job has fetched its files.

use assay_api::{Download, WorkerId};

use crate::{Store, StoreError};

impl Store {
    /// Records what a planning has fetched. False if it has ended, so that nothing was recorded.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn record_download(
        &self,
        worker: WorkerId,
        fence: i64,
        download: Download,
    ) -> Result<bool, StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(false);
        };
        // Whatever ends the attempt, or begins another, holds the job.
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(false);
        };
        let most = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let total = most(download.total_bytes);
        let recorded = sqlx::query(
            "update jobs set download_bytes = $4, download_total_bytes = $5
             where id = $1 and state = 'planning' and exists (
                 select from attempts
                 where fence = $2 and worker_id = $3 and kind = 'plan' and outcome is null
             )",
        )
        .bind(job)
        .bind(fence)
        .bind(worker)
        .bind(most(download.bytes).min(total))
        .bind(total)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        tx.commit().await?;
        Ok(recorded == 1)
    }
}
