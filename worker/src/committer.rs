//! The node's level of the reduction: what several devices have ready is counted in one call, and
//! no device waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_api::{ErrorCode, JobId, ProfiledWork};
use assay_store::{CommitOutcome, ShardOutcome, StoreError};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::lease::{Lease, Leases};
use crate::ledger::Ledger;
use crate::profile::Profiler;
use crate::shard::Interrupted;

/// Results that wait to be counted at most; then devices wait too. While the database is away this
/// is what a worker computes ahead.
pub(crate) const WAITING: usize = 64;

/// A shard that a device has computed.
#[derive(Debug)]
pub(crate) struct Computed {
    /// The attempt.
    pub(crate) lease: Arc<Lease>,
    /// The job.
    pub(crate) job: JobId,
    /// Index of the shard in its job, for the log.
    pub(crate) shard: u32,
    /// What came out.
    pub(crate) outcome: ShardOutcome,
    /// When.
    pub(crate) at: Instant,
}

/// Counts what the devices of this worker computed.
pub(crate) struct Committer {
    /// The ledger.
    pub(crate) ledger: Ledger,
    /// Attempts of this worker.
    pub(crate) leases: Leases,
    /// What is told of the time that it takes.
    pub(crate) profiler: Profiler,
}

impl Committer {
    /// Counts until all senders are gone and all that they sent is counted or given up.
    ///
    /// # Errors
    /// The ledger fails for good, or does not answer while the worker stops.
    pub(crate) async fn serve(self, mut ready: mpsc::Receiver<Computed>) -> Result<(), StoreError> {
        let mut batch = Vec::new();
        // How long the call before took is told with the next one.
        let mut untold = Duration::ZERO;
        while ready.recv_many(&mut batch, WAITING).await > 0 {
            let started = Instant::now();
            let part = untold.as_secs_f64() / batch.len() as f64;
            for computed in &mut batch {
                let waited = started.saturating_duration_since(computed.at);
                computed.outcome.commit_seconds = waited.as_secs_f64() + part;
            }
            self.count(&batch).await?;
            untold = started.elapsed();
            let mut jobs: Vec<JobId> = batch.iter().map(|computed| computed.job).collect();
            jobs.dedup();
            for job in jobs {
                let track = self.profiler.of(job, None);
                track.span(ProfiledWork::Commit, started, untold);
            }
            for computed in batch.drain(..) {
                self.leases.drop_lease(&computed.lease);
            }
        }
        Ok(())
    }

    async fn count(&self, batch: &[Computed]) -> Result<(), StoreError> {
        let outcomes: Vec<_> = batch
            .iter()
            .map(|computed| (computed.lease.fence(), &computed.outcome))
            .collect();
        match self.ledger.commit(&outcomes).await {
            Ok(answers) => {
                for (computed, answer) in batch.iter().zip(answers) {
                    tell(computed, answer);
                }
                Ok(())
            }
            // The worker stops and the database is away: what is left is lost with its leases. Each
            // result alone would wait as long again, and no job is at fault.
            Err(error) if error.is_transient() => Err(error),
            // One of them is at fault, and must not take the others with it.
            Err(_) if batch.len() > 1 => {
                for computed in batch {
                    Box::pin(self.count(std::slice::from_ref(computed))).await?;
                }
                Ok(())
            }
            Err(error) => self.refused(&batch[0], &error).await,
        }
    }

    /// Fails the job of a result that cannot be counted.
    async fn refused(&self, computed: &Computed, error: &StoreError) -> Result<(), StoreError> {
        let code = if error.is_miscount() {
            ErrorCode::CountsDisagree
        } else {
            ErrorCode::Internal
        };
        let shard = computed.shard;
        let failure = Failure::fatal(code, format!("shard {shard} cannot be counted: {error}"));
        let interrupted = Interrupted::Failed {
            failure,
            computed_tokens: computed.outcome.computed_tokens,
        };
        self.ledger
            .give_up(computed.lease.fence(), interrupted)
            .await
    }
}

fn tell(computed: &Computed, answer: CommitOutcome) {
    let (fence, shard) = (computed.lease.fence(), computed.shard);
    let ShardOutcome {
        computed_tokens: tokens,
        seconds,
        ..
    } = computed.outcome;
    match answer {
        CommitOutcome::Counted => tracing::info!(fence, shard, tokens, seconds, "counted"),
        CommitOutcome::Compared => tracing::info!(fence, shard, tokens, seconds, "compared"),
        CommitOutcome::Late => tracing::warn!(fence, shard, "late: the result is dropped"),
        CommitOutcome::Disagrees => {
            tracing::error!(fence, shard, "the result does not agree with the plan");
        }
    }
}

#[cfg(test)]
#[path = "committer_tests.rs"]
mod tests;
