//! What this worker writes into the ledger about its attempts. Every call outlives a restart of
//! the database and may be repeated: it names its fence.

use assay_api::{Download, ErrorCode, WorkerId};
use assay_store::{
    Claim, Claimant, CommitOutcome, NewPlan, ShardOutcome, Store, StoreError, WorkListener,
};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::retry::retry;
use crate::shard::Interrupted;

/// The ledger as one worker uses it.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// The database.
    pub(crate) store: Store,
    /// Set when the worker stops: from then on calls are given up on sooner.
    pub(crate) stopping: CancellationToken,
}

impl Ledger {
    pub(crate) async fn listen(&self) -> Result<WorkListener, StoreError> {
        retry(&self.stopping, || self.store.listen()).await
    }

    pub(crate) async fn claim(&self, claimant: &Claimant<'_>) -> Result<Vec<Claim>, StoreError> {
        retry(&self.stopping, || self.store.claim(claimant, None)).await
    }

    /// Ends attempts whose lease has run out. True if there were any.
    pub(crate) async fn reap(&self) -> Result<bool, StoreError> {
        let reaped = retry(&self.stopping, || self.store.reap(None)).await?;
        Ok(reaped.attempts > 0)
    }

    pub(crate) async fn commit_plan(&self, fence: i64, plan: &NewPlan) -> Result<bool, StoreError> {
        retry(&self.stopping, || {
            self.store.commit_plan(self.worker, fence, plan)
        })
        .await
    }

    /// Tells how far a planning has fetched its files. Not repeated: the next one tells more.
    pub(crate) async fn record_download(&self, fence: i64, download: Download) {
        let told = self.store.record_download(self.worker, fence, download);
        if let Err(error) = told.await {
            tracing::debug!(fence, %error, "the ledger does not know of the download");
        }
    }

    pub(crate) async fn record_split(&self, fence: i64, depth: u32) -> Result<bool, StoreError> {
        retry(&self.stopping, || {
            self.store.record_split(self.worker, fence, depth)
        })
        .await
    }

    pub(crate) async fn commit(
        &self,
        outcomes: &[(i64, &ShardOutcome)],
    ) -> Result<Vec<CommitOutcome>, StoreError> {
        retry(&self.stopping, || {
            self.store.commit_shards(self.worker, outcomes)
        })
        .await
    }

    /// Ends an attempt that did not commit: given back if it was stopped, else with its error.
    pub(crate) async fn give_up(
        &self,
        fence: i64,
        interrupted: Interrupted,
    ) -> Result<(), StoreError> {
        let (failure, computed_tokens) = match interrupted {
            Interrupted::Failed {
                failure,
                computed_tokens,
            } => (failure, computed_tokens),
            // Taken up where the shard is run.
            Interrupted::TooLarge { .. } => (Failure::Stopped, 0),
        };
        match failure.record(computed_tokens) {
            None => self.release(fence, computed_tokens).await,
            Some(failure) => {
                tracing::error!(fence, code = %failure.code, "{}", failure.detail);
                retry(&self.stopping, || {
                    self.store.fail_attempt(self.worker, fence, &failure)
                })
                .await
            }
        }
    }

    /// Gives an attempt back, after `computed_tokens` in vain.
    pub(crate) async fn release(&self, fence: i64, computed_tokens: u64) -> Result<(), StoreError> {
        tracing::info!(fence, "given back");
        retry(&self.stopping, || {
            self.store
                .release_attempt(self.worker, fence, computed_tokens)
        })
        .await
    }
}

/// A failure of the ledger, as one of the attempt.
pub(crate) fn internal(error: &dyn std::error::Error) -> Interrupted {
    Interrupted::before(Failure::error(ErrorCode::Internal, error.to_string()))
}
