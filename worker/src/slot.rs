//! One device's loop: claim, run, hand over to be counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_api::{ErrorCode, JobId, ProfiledWork};
use assay_data::Fetched;
use assay_store::{
    Claim, Claimant, NewPlan, PlanClaim, ShardClaim, StoreError, Work, WorkListener,
};
use tokio::sync::mpsc;

use crate::committer::Computed;
use crate::device::Device;
use crate::failure::Failure;
use crate::fetch;
use crate::lease::{Lease, Leases};
use crate::ledger::{Ledger, internal};
use crate::planner::plan_job;
use crate::profile::{Profiler, Track};
use crate::rate::{Rate, duration};
use crate::resources::{JobResources, ResourceCache};
use crate::shard::{Interrupted, ShardWork};

/// Longest wait for work; a notification ends it earlier.
const POLL: Duration = Duration::from_secs(1);

/// Between two tellings of how far a download is.
const TELL: Duration = Duration::from_secs(1);

/// A device and what it needs to find work for itself.
pub(crate) struct Slot {
    /// The device, as given to the worker.
    pub(crate) name: String,
    /// Its device kind.
    pub(crate) kind: String,
    /// How long a claim holds.
    pub(crate) lease: Duration,
    /// The device.
    pub(crate) device: Device,
    /// Its speed.
    pub(crate) rate: Rate,
    /// The ledger.
    pub(crate) ledger: Ledger,
    /// Resources of jobs, shared by the devices of this worker.
    pub(crate) resources: Arc<ResourceCache>,
    /// Attempts of this worker.
    pub(crate) leases: Leases,
    /// Takes what is computed.
    pub(crate) results: mpsc::Sender<Computed>,
    /// What is told of the time that everything takes.
    pub(crate) profiler: Profiler,
    /// How long the device waited until its last result was taken.
    pub(crate) handing_over: Duration,
    /// Whether the device is hung: then it gets nothing more, and what it holds is left to others.
    pub(crate) is_hung: bool,
}

/// A claimed shard that waits for its turn.
struct Queued {
    lease: Arc<Lease>,
    job: JobId,
    shard: ShardClaim,
}

impl Slot {
    /// Claims and runs until the worker stops.
    ///
    /// # Errors
    /// The ledger fails for good, or the device's thread has died.
    pub(crate) async fn serve(mut self) -> anyhow::Result<()> {
        // Subscribed before the first look: what appears in between is notified.
        let mut listener = self.ledger.listen().await?;
        while !self.ledger.stopping.is_cancelled() {
            let started = Instant::now();
            let claims = self.claim().await?;
            if claims.is_empty() {
                self.idle(&mut listener).await?;
            } else {
                self.attempt(claims, started).await?;
            }
        }
        Ok(())
    }

    async fn claim(&self) -> Result<Vec<Claim>, StoreError> {
        let claimant = Claimant {
            worker: self.ledger.worker,
            device: &self.name,
            device_kind: &self.kind,
            lease: self.lease,
            rate: self.rate.told(),
        };
        self.ledger.claim(&claimant).await
    }

    /// Waits for work. Idle workers also take leases of dead ones away, so that jobs go on while
    /// no server runs.
    async fn idle(&self, listener: &mut WorkListener) -> Result<(), StoreError> {
        if self.ledger.reap().await? {
            return Ok(());
        }
        tokio::select! {
            () = listener.wait(POLL) => {}
            () = self.ledger.stopping.cancelled() => {}
        }
        Ok(())
    }

    /// Runs what was claimed in one claim, which began at `started` and ends now.
    async fn attempt(&mut self, claims: Vec<Claim>, started: Instant) -> anyhow::Result<()> {
        let each = started.elapsed().div_f64(claims.len() as f64);
        let claim_seconds = each.as_secs_f64();
        let mut begun = started;
        let mut queue = VecDeque::with_capacity(claims.len());
        for Claim { job, .. } in &claims {
            self.track(*job).span(ProfiledWork::Claim, begun, each);
            begun += each;
        }
        for Claim { fence, job, work } in claims {
            let lease = self.leases.hold(fence);
            // The worker may have begun to stop between the claim and the hold.
            if self.ledger.stopping.is_cancelled() {
                lease.stop();
            }
            match work {
                Work::Plan(plan) => self.plan(plan, &lease, self.track(job)).await?,
                Work::Shard(shard) => queue.push_back(Queued { lease, job, shard }),
            }
        }
        while let Some(queued) = queue.pop_front() {
            if self.can_compute() {
                self.shard(queued, &queue, claim_seconds).await?;
            } else {
                self.ledger.release(queued.lease.fence(), 0).await?;
                self.leases.drop_lease(&queued.lease);
            }
        }
        anyhow::ensure!(
            self.can_compute(),
            "device {} cannot compute any more",
            self.name
        );
        Ok(())
    }

    /// What this device does for a job.
    fn track(&self, job: JobId) -> Track {
        self.profiler.of(job, Some(&self.name))
    }

    fn can_compute(&self) -> bool {
        !self.is_hung && !self.device.is_dead()
    }

    async fn plan(&self, claim: PlanClaim, lease: &Lease, track: Track) -> Result<(), StoreError> {
        let planned = self.run_plan(claim, lease, track).await;
        if let Err(interrupted) = planned {
            self.ledger.give_up(lease.fence(), interrupted).await?;
        }
        self.leases.drop_lease(lease);
        Ok(())
    }

    async fn run_plan(
        &self,
        claim: PlanClaim,
        lease: &Lease,
        track: Track,
    ) -> Result<(), Interrupted> {
        let host = self.resources.host().clone();
        let planning_track = track.clone();
        let planning = async {
            let started = Instant::now();
            let fetched = self.fetch(&claim, lease.fence()).await?;
            planning_track.until_now(ProfiledWork::Open, started);
            let plan = move || plan_job(&host, &claim, &fetched, &planning_track);
            tokio::task::spawn_blocking(plan)
                .await
                .map_err(|error| Failure::error(ErrorCode::Internal, error.to_string()))?
        };
        let plan = tokio::select! {
            planned = planning => planned.map_err(Interrupted::before)?,
            // Planning leaves nothing behind but caches, so it can be left in the middle.
            () = lease.stopped() => return Err(Interrupted::before(Failure::Stopped)),
        };
        let started = Instant::now();
        let committed = self.commit_plan(lease.fence(), &plan).await;
        track.until_now(ProfiledWork::Plan, started);
        committed
    }

    /// Fetches what the job names of a hub, and tells the ledger how far it is.
    async fn fetch(&self, claim: &PlanClaim, fence: i64) -> Result<Fetched, Failure> {
        let progress = fetch::Progress::default();
        let sources = claim.rows.iter().map(|(source, _)| source);
        let fetching = self
            .resources
            .host()
            .fetch(&claim.model, sources, &progress);
        let telling = async {
            let mut told = None;
            loop {
                tokio::time::sleep(TELL).await;
                let now = *progress.lock().expect("assigning does not panic");
                if let Some(download) = now.filter(|_| now != told) {
                    self.ledger.record_download(fence, download).await;
                    told = now;
                }
            }
        };
        tokio::select! {
            fetched = fetching => fetched,
            () = telling => unreachable!("it has no end"),
        }
    }

    async fn commit_plan(&self, fence: i64, plan: &NewPlan) -> Result<(), Interrupted> {
        let shards: usize = plan.datasets.iter().map(|d| d.plan.shards.len()).sum();
        let stored = self.ledger.commit_plan(fence, plan).await;
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

    /// Runs a shard and hands it over. `behind` it wait the others of the claim.
    async fn shard(
        &mut self,
        Queued { lease, job, shard }: Queued,
        behind: &VecDeque<Queued>,
        claim_seconds: f64,
    ) -> Result<(), StoreError> {
        let (index, flops) = (shard.index, shard.flops);
        tracing::debug!(%job, shard = index, fence = lease.fence(), "claimed");
        let track = self.track(job);
        let started = Instant::now();
        let opened = self.open(job, &lease).await;
        track.until_now(ProfiledWork::Open, started);
        let result = match opened {
            Ok(resources) => {
                self.expect(&resources, &lease, flops, behind);
                let outcome = tokio::select! {
                    outcome = self.compute(shard, &resources, &lease) => outcome,
                    () = lease.abandoned() => {
                        // Not given back: it has lapsed, and counts as lost if it is to blame.
                        self.is_hung = true;
                        return Ok(());
                    }
                };
                if let Ok(outcome) = &outcome {
                    self.rate.learn(&resources.rate_key, flops, outcome.seconds);
                }
                outcome
            }
            Err(interrupted) => Err(interrupted),
        };
        match result {
            Ok(mut outcome) => {
                lease.computed();
                outcome.claim_seconds = claim_seconds + self.handing_over.as_secs_f64();
                let done = Instant::now();
                let computed = Computed {
                    lease,
                    job,
                    shard: index,
                    outcome,
                    at: done,
                };
                // The committer ends after all slots, unless the ledger failed for good: then the
                // worker stops, and the lease runs out.
                let _ = self.results.send(computed).await;
                self.handing_over = done.elapsed();
                track.span(ProfiledWork::HandOver, done, self.handing_over);
            }
            Err(interrupted) => {
                self.ledger.give_up(lease.fence(), interrupted).await?;
                self.leases.drop_lease(&lease);
            }
        }
        Ok(())
    }

    async fn open(&self, job: JobId, lease: &Lease) -> Result<Arc<JobResources>, Interrupted> {
        if lease.is_stopped() {
            return Err(Interrupted::before(Failure::Stopped));
        }
        tokio::select! {
            opened = self.resources.get(job, &self.ledger.stopping) => opened.map_err(Interrupted::before),
            // Digests and tokens of large files take a while; the next attempt finds the caches.
            () = lease.stopped() => Err(Interrupted::before(Failure::Stopped)),
        }
    }

    /// Tells the leases when their shards should end, for the next renewal to tell the ledger.
    fn expect(&self, job: &JobResources, lease: &Lease, flops: f64, behind: &VecDeque<Queued>) {
        let Some(rate) = self.rate.of(&job.rate_key) else {
            return;
        };
        let mut total = flops;
        lease.expect(duration(total, rate));
        for queued in behind {
            total += queued.shard.flops;
            queued.lease.expect(duration(total, rate));
        }
    }

    async fn compute(
        &self,
        shard: ShardClaim,
        resources: &Arc<JobResources>,
        lease: &Arc<Lease>,
    ) -> Result<assay_store::ShardOutcome, Interrupted> {
        let mut work = ShardWork {
            depth: shard.split_depth,
            rate: self.rate.of(&resources.rate_key),
            shard: Arc::new(shard),
            job: Arc::clone(resources),
            lease: Arc::clone(lease),
        };
        let mut load_seconds = 0.0;
        loop {
            let ran = self.run(work.clone()).await;
            lease.leave_device();
            load_seconds += ran.load_seconds;
            match ran.result {
                Err(Interrupted::TooLarge { depth }) => {
                    self.record_split(lease.fence(), work.shard.index, depth)
                        .await?;
                    work.depth = depth;
                }
                Err(interrupted) => return Err(interrupted),
                Ok(mut outcome) => {
                    outcome.load_seconds = load_seconds;
                    return Ok(outcome);
                }
            }
        }
    }

    async fn run(&self, work: ShardWork) -> crate::device::Ran {
        let index = work.shard.index;
        let ran = self.device.run(work).await;
        ran.unwrap_or_else(|| crate::device::Ran {
            load_seconds: 0.0,
            result: Err(Interrupted::before(Failure::error(
                ErrorCode::ComputeFailed,
                format!(
                    "the thread of device {} died while it ran shard {index}",
                    self.name
                ),
            ))),
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
        let recorded = self.ledger.record_split(fence, depth).await;
        if recorded.map_err(|error| internal(&error))? {
            Ok(())
        } else {
            Err(Interrupted::before(Failure::Stopped))
        }
    }
}
