//! One device's loop: claim, run, commit.

use std::sync::Arc;
use std::time::Duration;

use assay_api::{ErrorCode, WorkerId};
use assay_store::{
    Claim, Claimant, CommitOutcome, NewPlan, PlanClaim, ShardClaim, ShardOutcome, Store,
    StoreError, Work, WorkListener,
};
use tokio_util::sync::CancellationToken;

use crate::device::Device;
use crate::failure::Failure;
use crate::lease::{Lease, Leases};
use crate::planner::plan_job;
use crate::resources::ResourceCache;
use crate::retry::retry;
use crate::shard::{Interrupted, ShardWork};

/// Longest wait for work; a notification ends it earlier.
const POLL: Duration = Duration::from_secs(1);

/// A device and what it needs to find work for itself.
pub(crate) struct Slot {
    /// The worker.
    pub(crate) worker: WorkerId,
    /// The device, as given to the worker.
    pub(crate) name: String,
    /// Its device kind.
    pub(crate) kind: String,
    /// How long a claim holds.
    pub(crate) lease: Duration,
    /// The device.
    pub(crate) device: Device,
    /// The ledger.
    pub(crate) store: Store,
    /// Resources of jobs, shared by the devices of this worker.
    pub(crate) resources: Arc<ResourceCache>,
    /// Attempts of this worker.
    pub(crate) leases: Leases,
    /// Set when the worker stops.
    pub(crate) stopping: CancellationToken,
}

impl Slot {
    /// Claims and runs until the worker stops.
    ///
    /// # Errors
    /// The ledger fails for good, or the device's thread has died.
    pub(crate) async fn serve(self) -> anyhow::Result<()> {
        // Subscribed before the first look: what appears in between is notified.
        let mut listener = retry(&self.stopping, || self.store.listen()).await?;
        while !self.stopping.is_cancelled() {
            match self.claim().await? {
                Some(claim) => self.attempt(claim).await?,
                None => self.idle(&mut listener).await?,
            }
        }
        Ok(())
    }

    async fn claim(&self) -> Result<Option<Claim>, StoreError> {
        let claimant = Claimant {
            worker: self.worker,
            device: &self.name,
            device_kind: &self.kind,
            lease: self.lease,
        };
        retry(&self.stopping, || self.store.claim(&claimant, None)).await
    }

    /// Waits for work. Idle workers also take leases of dead ones away, so that jobs go on while
    /// no server runs.
    async fn idle(&self, listener: &mut WorkListener) -> Result<(), StoreError> {
        let reaped = retry(&self.stopping, || self.store.reap(None)).await?;
        if reaped.attempts > 0 {
            return Ok(());
        }
        tokio::select! {
            () = listener.wait(POLL) => {}
            () = self.stopping.cancelled() => {}
        }
        Ok(())
    }

    async fn attempt(&self, claim: Claim) -> anyhow::Result<()> {
        let lease = self.leases.hold(claim.fence);
        // The worker may have begun to stop between the claim and the hold.
        if self.stopping.is_cancelled() {
            lease.stop();
        }
        let Claim { fence, job, work } = claim;
        let result = match work {
            Work::Plan(plan) => self.plan(fence, plan, &lease).await,
            Work::Shard(shard) => {
                tracing::debug!(%job, shard = shard.index, fence, "claimed");
                self.shard(fence, job, shard, &lease).await
            }
        };
        let ended = match result {
            Ok(()) => Ok(()),
            Err(interrupted) => self.give_up(fence, interrupted).await,
        };
        self.leases.drop_lease(&lease);
        ended?;
        anyhow::ensure!(
            !self.device.is_dead(),
            "device {} cannot compute any more",
            self.name
        );
        Ok(())
    }

    async fn plan(&self, fence: i64, claim: PlanClaim, lease: &Lease) -> Result<(), Interrupted> {
        let host = self.resources.host().clone();
        let planning = tokio::task::spawn_blocking(move || plan_job(&host, &claim));
        let plan = tokio::select! {
            planned = planning => planned.map_err(|error| internal(&error))?.map_err(Interrupted::before)?,
            // Planning leaves nothing behind but caches, so it can be left in the middle.
            () = lease.stopped() => return Err(Interrupted::before(Failure::Stopped)),
        };
        self.commit_plan(fence, &plan).await
    }

    async fn commit_plan(&self, fence: i64, plan: &NewPlan) -> Result<(), Interrupted> {
        let shards: usize = plan.datasets.iter().map(|d| d.plan.shards.len()).sum();
        let stored = retry(&self.stopping, || {
            self.store.commit_plan(self.worker, fence, plan)
        })
        .await;
        if stored.map_err(|error| internal(&error))? {
            tracing::info!(fence, shards, "planned");
        } else {
            tracing::warn!(
                fence,
                "the planning had ended in the ledger; the plan is dropped"
            );
        }
        Ok(())
    }

    async fn shard(
        &self,
        fence: i64,
        job: assay_api::JobId,
        shard: ShardClaim,
        lease: &Arc<Lease>,
    ) -> Result<(), Interrupted> {
        let index = shard.index;
        let resources = tokio::select! {
            opened = self.resources.get(job, &self.stopping) => opened.map_err(Interrupted::before)?,
            // Digests and tokens of large files take a while; the next attempt finds the caches.
            () = lease.stopped() => return Err(Interrupted::before(Failure::Stopped)),
        };
        let mut work = ShardWork {
            depth: shard.split_depth,
            shard: Arc::new(shard),
            job: resources,
            lease: Arc::clone(lease),
        };
        let outcome = loop {
            match self.run(index, work.clone()).await {
                Err(Interrupted::TooLarge { depth }) => {
                    self.record_split(fence, index, depth).await?;
                    work.depth = depth;
                }
                answer => break answer?,
            }
        };
        self.commit_shard(fence, index, &outcome).await
    }

    async fn run(&self, shard: u32, work: ShardWork) -> Result<ShardOutcome, Interrupted> {
        let answer = self.device.run(work).await;
        answer.unwrap_or_else(|| {
            Err(Interrupted::before(Failure::error(
                ErrorCode::ComputeFailed,
                format!(
                    "the thread of device {} died while it ran shard {shard}",
                    self.name
                ),
            )))
        })
    }

    /// Records how the shard is split, before anything is computed by it.
    async fn record_split(&self, fence: i64, shard: u32, depth: u32) -> Result<(), Interrupted> {
        tracing::warn!(
            fence,
            shard,
            depth,
            "splitting the micro-batches to fit in memory"
        );
        let recorded = retry(&self.stopping, || {
            self.store.record_split(self.worker, fence, depth)
        })
        .await;
        if recorded.map_err(|error| internal(&error))? {
            Ok(())
        } else {
            Err(Interrupted::before(Failure::Stopped))
        }
    }

    async fn commit_shard(
        &self,
        fence: i64,
        shard: u32,
        outcome: &ShardOutcome,
    ) -> Result<(), Interrupted> {
        let committed = retry(&self.stopping, || {
            self.store.commit_shard(self.worker, fence, outcome)
        })
        .await;
        let committed = committed.map_err(|error| {
            let code = if error.is_miscount() {
                ErrorCode::CountsDisagree
            } else {
                ErrorCode::Internal
            };
            let failure = Failure::fatal(code, format!("shard {shard} cannot be counted: {error}"));
            Interrupted::Failed {
                failure,
                computed_tokens: outcome.computed_tokens,
            }
        })?;
        match committed {
            CommitOutcome::Counted => {
                tracing::info!(
                    fence,
                    shard,
                    tokens = outcome.computed_tokens,
                    seconds = outcome.seconds,
                    "counted"
                );
            }
            CommitOutcome::Late => tracing::warn!(fence, shard, "late: the result is dropped"),
            CommitOutcome::Disagrees => {
                tracing::error!(fence, shard, "the result does not agree with the plan");
            }
        }
        Ok(())
    }

    /// Ends an attempt that did not commit: given back if it was stopped, else with its error.
    async fn give_up(&self, fence: i64, interrupted: Interrupted) -> Result<(), StoreError> {
        let record = match interrupted {
            Interrupted::Failed {
                failure,
                computed_tokens,
            } => failure.record(computed_tokens),
            // Taken up where the shard is run.
            Interrupted::TooLarge { .. } => None,
        };
        match record {
            None => {
                tracing::info!(fence, "given back");
                retry(&self.stopping, || {
                    self.store.release_attempt(self.worker, fence)
                })
                .await
            }
            Some(failure) => {
                tracing::error!(fence, code = %failure.code, "{}", failure.detail);
                retry(&self.stopping, || {
                    self.store.fail_attempt(self.worker, fence, &failure)
                })
                .await
            }
        }
    }
}

fn internal(error: &dyn std::error::Error) -> Interrupted {
    Interrupted::before(Failure::error(ErrorCode::Internal, error.to_string()))
}
