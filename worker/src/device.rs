//! A device: one thread that owns its tensors. Async code sends it work and awaits the answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use assay_api::{Dtype, ProfiledWork};
use assay_decoder::{Decoder, MIN_GEMM_ROWS, weight_bytes};
use assay_store::{Compared, ShardOutcome};
use tokio::sync::{mpsc, oneshot};

use crate::budget::Budget;
use crate::devices::DeviceSpec;
use crate::failure::Failure;
use crate::faults::Faults;
use crate::precision::{FastDtypes, Precision};
use crate::profile::{self, Profiler, Track};
use crate::rate::duration;
use crate::shard::{Interrupted, ShardWork, run_shard};

/// Bytes of weights a second, as they lie in memory, that loading is expected to take in. The files
/// may hold twice as many, on a busy network disk: a device is hung only at a tenth of it, and after
/// the patience.
const LOAD_RATE: f64 = 1e8;

/// The answer to a shard.
pub(crate) struct Ran {
    /// Seconds in which the model was loaded, and a part of a shard scored in the job's dtype.
    pub(crate) load_seconds: f64,
    /// What came out.
    pub(crate) result: Result<ShardOutcome, Interrupted>,
}

struct Command {
    work: ShardWork,
    answer: oneshot::Sender<Ran>,
}

/// A handle to the device's thread; the thread ends with its last handle.
#[derive(Debug)]
pub(crate) struct Device {
    commands: mpsc::Sender<Command>,
}

impl Device {
    /// Starts the thread of a device.
    ///
    /// # Errors
    /// The thread cannot be started, or cannot be pinned to its cores.
    pub(crate) async fn start(
        spec: DeviceSpec,
        budget: Budget,
        fast: Option<FastDtypes>,
        faults: Arc<Faults>,
        profiler: Profiler,
    ) -> anyhow::Result<Self> {
        let (commands, inbox) = mpsc::channel(1);
        let (ready, started) = oneshot::channel();
        thread::Builder::new()
            .name(spec.to_string())
            .spawn(move || {
                let prepared = prepare(&spec);
                let usable = prepared.is_ok();
                // The receiver waits for exactly this; without it the worker is gone.
                let _ = ready.send(prepared);
                if usable {
                    let computer = Computer {
                        precision: Precision::new(tch_device(&spec), fast),
                        spec,
                        budget,
                        faults,
                        profiler,
                        loaded: None,
                    };
                    computer.serve(inbox);
                }
            })?;
        started.await??;
        Ok(Self { commands })
    }

    /// Whether the thread has ended, which it does only by a panic, or when nothing more can be
    /// computed, while a handle lives.
    pub(crate) fn is_dead(&self) -> bool {
        self.commands.is_closed()
    }

    /// Runs a shard. None if the thread has died.
    pub(crate) async fn run(&self, work: ShardWork) -> Option<Ran> {
        let (answer, receiver) = oneshot::channel();
        self.commands.send(Command { work, answer }).await.ok()?;
        receiver.await.ok()
    }
}

/// Pins the thread before libtorch starts its own threads, which inherit the cores.
fn prepare(spec: &DeviceSpec) -> anyhow::Result<()> {
    if let DeviceSpec::Cpu { first, last } = spec {
        crate::cores::pin(*first..=*last)?;
    }
    assay_decoder::runtime::init(spec.threads())?;
    Ok(())
}

fn tch_device(spec: &DeviceSpec) -> tch::Device {
    match spec {
        DeviceSpec::Cpu { .. } => tch::Device::Cpu,
        DeviceSpec::Cuda(index) => tch::Device::Cuda(*index),
    }
}

/// The model a device holds, by what makes it the same model.
struct Loaded {
    digest: String,
    dtype: Dtype,
    decoder: Decoder,
    /// Numbers of rows of which it is written down how fast the products are alone.
    measured: HashSet<usize>,
}

/// What the thread of a device owns.
struct Computer {
    spec: DeviceSpec,
    budget: Budget,
    faults: Arc<Faults>,
    precision: Precision,
    profiler: Profiler,
    loaded: Option<Loaded>,
}

impl Computer {
    fn serve(mut self, mut inbox: mpsc::Receiver<Command>) {
        while let Some(Command { work, answer }) = inbox.blocking_recv() {
            let ran = self.run(&work);
            let is_lasting = matches!(
                &ran.result,
                Err(Interrupted::Failed { failure, .. }) if failure.is_lasting()
            );
            if is_lasting {
                // Before the answer, so that nothing more is sent: the worker ends with its device,
                // and whoever supervises it starts a fresh process.
                tracing::error!(device = %self.spec, "nothing more can be computed in this process");
                inbox.close();
            }
            // Nobody waits any more when the worker is stopping.
            let _ = answer.send(ran);
        }
    }

    fn run(&mut self, work: &ShardWork) -> Ran {
        let started = Instant::now();
        let prepared = self.prepare(work);
        let load_seconds = started.elapsed().as_secs_f64();
        let track = self.profiler.of(work.job.id, Some(&self.spec.to_string()));
        track.until_now(ProfiledWork::Load, started);
        let result = prepared.and_then(|(dtype, reference)| {
            if track.is_kept()
                && let Some(held) = &self.loaded
            {
                held.decoder.start_profile();
            }
            let started = Instant::now();
            let result = self.compute(work, dtype, reference);
            self.profile(&track, &result, started);
            result
        });
        Ran {
            load_seconds,
            result,
        }
    }

    /// Writes down where the time of a shard went, if it is measured. Of micro-batches of a size
    /// that is new the products alone are measured too: the floor under the time of the others.
    fn profile(
        &mut self,
        track: &Track,
        result: &Result<ShardOutcome, Interrupted>,
        started: Instant,
    ) {
        let Some(held) = &mut self.loaded else { return };
        let Some(profile) = held.decoder.take_profile() else {
            return;
        };
        let tokens = match result {
            Ok(outcome) => outcome.computed_tokens,
            Err(Interrupted::Failed {
                computed_tokens, ..
            }) => *computed_tokens,
            Err(Interrupted::TooLarge { .. }) => 0,
        };
        let shard = ProfiledWork::Score(profile::shard(&profile, tokens));
        track.until_now(shard, started);
        if result.is_err() {
            return;
        }
        for rows in profile.rows {
            let rows = rows.next_multiple_of(MIN_GEMM_ROWS);
            if !held.measured.insert(rows) {
                continue;
            }
            let started = Instant::now();
            match profile::products(&held.decoder, tch_device(&self.spec), rows) {
                Ok(fastest) => {
                    let fastest = fastest.as_secs_f64();
                    track.until_now(ProfiledWork::Floor { rows, fastest }, started);
                }
                Err(error) => tracing::warn!(%error, rows, "the products cannot be measured"),
            }
        }
    }

    /// Loads the model in the dtype that the device computes the job in. If that is not the job's,
    /// the beginning of the first shard is scored in the job's before; answers its NLLs.
    fn prepare(&mut self, work: &ShardWork) -> Result<(Dtype, Option<Vec<f64>>), Interrupted> {
        let job = &work.job;
        let dtype = self.precision.dtype(job);
        let mut reference = None;
        if dtype != job.dtype && self.precision.compares(job.id) {
            reference = self.reference(work);
        }
        self.load(work, dtype).map_err(Interrupted::before)?;
        Ok((dtype, reference))
    }

    /// The NLLs of the first micro-batch in the job's dtype, in which the device is slow. None if
    /// it cannot compute in it: the shard itself does not depend on it.
    fn reference(&mut self, work: &ShardWork) -> Option<Vec<f64>> {
        let beginning = ShardWork {
            shard: Arc::new(work.shard.beginning()),
            // What is known of the device's speed is not of this dtype.
            rate: None,
            ..work.clone()
        };
        let mut nlls = Vec::new();
        match self.score(&beginning, work.job.dtype, Some(&mut nlls)) {
            Ok(_) => Some(nlls),
            Err(interrupted) => {
                tracing::warn!(device = %self.spec, %interrupted, "not compared with the job's dtype");
                None
            }
        }
    }

    fn compute(
        &mut self,
        work: &ShardWork,
        dtype: Dtype,
        reference: Option<Vec<f64>>,
    ) -> Result<ShardOutcome, Interrupted> {
        let Some(reference) = reference else {
            let mut outcome = self.score(work, dtype, None)?;
            outcome.dtype = (dtype != work.job.dtype).then_some(dtype);
            return Ok(outcome);
        };
        let mut nlls = Vec::with_capacity(reference.len());
        let mut outcome = self.score(work, dtype, Some(&mut nlls))?;
        outcome.dtype = Some(dtype);
        outcome.compared = Some(compare(&nlls, &reference));
        Ok(outcome)
    }

    fn score(
        &mut self,
        work: &ShardWork,
        dtype: Dtype,
        nlls: Option<&mut Vec<f64>>,
    ) -> Result<ShardOutcome, Interrupted> {
        let faults = Arc::clone(&self.faults);
        let budget = self.budget;
        let decoder = self.load(work, dtype).map_err(Interrupted::before)?;
        run_shard(decoder, work, budget.of_micro_batch(), &faults, nlls)
    }

    /// The decoder for this work: the one held, or loaded now.
    fn load(&mut self, work: &ShardWork, dtype: Dtype) -> Result<&Decoder, Failure> {
        let job = &work.job;
        let is_of_job = |held: &Loaded| held.digest == job.digest && held.dtype == dtype;
        let held = match self.loaded.take() {
            Some(held) if is_of_job(&held) => held,
            other => {
                // Before the next one is loaded: both may not fit.
                drop(other);
                let digest = job.digest.clone();
                let bytes = weight_bytes(&job.checkpoint, dtype);
                self.budget.check_weights(bytes)?;
                work.lease.advance(duration(bytes as f64, LOAD_RATE), None);
                self.faults.before_load();
                tracing::info!(device = %self.spec, digest, dtype = dtype.as_str(), "loading");
                let decoder = Decoder::load(&job.checkpoint, dtype, tch_device(&self.spec))?;
                // Loading takes a while, and the digest was taken before it.
                job.checkpoint.check_unwritten()?;
                Loaded {
                    digest,
                    dtype,
                    decoder,
                    measured: HashSet::new(),
                }
            }
        };
        Ok(&self.loaded.insert(held).decoder)
    }
}

/// How far the NLLs are above those in the job's dtype, of which there may be fewer.
fn compare(nlls: &[f64], reference: &[f64]) -> Compared {
    let differences = nlls.iter().zip(reference).map(|(own, of_job)| own - of_job);
    differences.fold(Compared::default(), |sum, difference| Compared {
        tokens: sum.tokens + 1,
        difference: sum.difference + difference,
        squares: sum.squares + difference * difference,
    })
}
