//! Splits: a shard that did not fit in memory is computed in smaller pieces, by every attempt but
//! those that were computed before.

use assay_api::{JobState, WorkerId};

use crate::rows::int;
use crate::{Store, StoreError};

impl Store {
    /// Records that the shard's micro-batches are halved `depth` times, before they are computed
    /// so: how a shard was split decides bits of its result, and whoever runs it again has to
    /// split it alike. The depth on the shard only grows.
    ///
    /// An audit is of a shard that counts already, at the depth that it was computed by. It does not
    /// change that: its own depth comes with its result, and two depths are compared as two device
    /// kinds are.
    ///
    /// False if the attempt has ended, so that nothing was recorded and nothing is to be computed.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn record_split(
        &self,
        worker: WorkerId,
        fence: i64,
        depth: u32,
    ) -> Result<bool, StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(false);
        };
        let Some((mut tx, state)) = self.lock_job(job).await? else {
            return Ok(false);
        };
        // Locked, not only read: a reaper must not give the shard to another worker in between.
        let attempt: Option<(i32, bool)> = sqlx::query_as(
            "select shard, kind = 'audit' from attempts
             where fence = $1 and worker_id = $2 and shard is not null and outcome is null
             for no key update",
        )
        .bind(fence)
        .bind(worker)
        .fetch_optional(&mut *tx)
        .await?;
        let Some((shard, is_audit)) = attempt.filter(|_| state == JobState::Running) else {
            tx.rollback().await?;
            return Ok(false);
        };
        if is_audit {
            tx.rollback().await?;
            return Ok(true);
        }
        sqlx::query(
            "update shards set split_depth = $3
             where job_id = $1 and index = $2 and split_depth < $3",
        )
        .bind(job)
        .bind(shard)
        .bind(int(depth)?)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(true)
    }
}
