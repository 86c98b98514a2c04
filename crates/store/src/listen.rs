//! Waking idle workers. A notification may be missed (a broken connection, a restart), so it only
//! shortens the wait: workers poll all the same.

use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use crate::{Store, StoreError};

const WORK: &str = "assay_work";

/// Tells all listening workers that there may be something to claim, once the transaction commits.
pub(crate) async fn wake_workers(tx: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query("select pg_notify($1, '')")
        .bind(WORK)
        .execute(tx)
        .await?;
    Ok(())
}

/// Waits for work to appear.
pub struct WorkListener {
    listener: PgListener,
}

impl WorkListener {
    /// Returns when work may have appeared, after `poll` at the latest.
    pub async fn wait(&mut self, poll: Duration) {
        // A lost connection is made anew by the listener; until then polling does the work.
        let _ = tokio::time::timeout(poll, async {
            if self.listener.recv().await.is_err() {
                std::future::pending::<()>().await;
            }
        })
        .await;
    }
}

impl Store {
    /// Subscribes to work. Subscribe before looking for work, or what appears in between is seen
    /// only at the next poll.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn listen(&self) -> Result<WorkListener, StoreError> {
        let mut listener = PgListener::connect_with(&self.pool).await?;
        listener.listen(WORK).await?;
        Ok(WorkListener { listener })
    }
}
