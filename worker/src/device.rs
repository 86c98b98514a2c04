//! A device: one thread that owns its tensors. Async code sends it work and awaits the answer.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use assay_api::Dtype;
use assay_decoder::{Decoder, weight_bytes};
use assay_store::ShardOutcome;
use tokio::sync::{mpsc, oneshot};

use crate::budget::Budget;
use crate::devices::DeviceSpec;
use crate::failure::Failure;
use crate::faults::Faults;
use crate::shard::{Interrupted, ShardWork, run_shard};

/// The answer to a shard.
pub(crate) struct Ran {
    /// Seconds in which the model was loaded.
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
        faults: Arc<Faults>,
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
                    serve(&spec, budget, &faults, inbox);
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
}

fn serve(spec: &DeviceSpec, budget: Budget, faults: &Faults, mut inbox: mpsc::Receiver<Command>) {
    let mut loaded: Option<Loaded> = None;
    while let Some(Command { work, answer }) = inbox.blocking_recv() {
        let ran = run(spec, budget, faults, &mut loaded, &work);
        let is_lasting = matches!(
            &ran.result,
            Err(Interrupted::Failed { failure, .. }) if failure.is_lasting()
        );
        if is_lasting {
            // Before the answer, so that nothing more is sent: the worker ends with its device,
            // and whoever supervises it starts a fresh process.
            tracing::error!(device = %spec, "nothing more can be computed in this process");
            inbox.close();
        }
        // Nobody waits any more when the worker is stopping.
        let _ = answer.send(ran);
    }
}

fn run(
    spec: &DeviceSpec,
    budget: Budget,
    faults: &Faults,
    loaded: &mut Option<Loaded>,
    work: &ShardWork,
) -> Ran {
    let started = Instant::now();
    let decoder = load(spec, budget, loaded, work).map_err(Interrupted::before);
    let load_seconds = started.elapsed().as_secs_f64();
    let result =
        decoder.and_then(|decoder| run_shard(decoder, work, budget.of_micro_batch(), faults));
    Ran {
        load_seconds,
        result,
    }
}

/// The decoder for this work: the one held, or loaded now.
fn load<'a>(
    spec: &DeviceSpec,
    budget: Budget,
    loaded: &'a mut Option<Loaded>,
    work: &ShardWork,
) -> Result<&'a Decoder, Failure> {
    let job = &work.job;
    let is_of_job = |held: &Loaded| held.digest == job.digest && held.dtype == job.dtype;
    let held = match loaded.take() {
        Some(held) if is_of_job(&held) => held,
        other => {
            // Before the next one is loaded: both may not fit.
            drop(other);
            let (digest, dtype) = (job.digest.clone(), job.dtype);
            budget.check_weights(weight_bytes(&job.checkpoint, dtype))?;
            tracing::info!(device = %spec, digest, dtype = dtype.as_str(), "loading");
            let decoder = Decoder::load(&job.checkpoint, dtype, tch_device(spec))?;
            // Loading takes a while, and the digest was taken before it.
            job.checkpoint.check_unwritten()?;
            Loaded {
                digest,
                dtype,
                decoder,
            }
        }
    };
    Ok(&loaded.insert(held).decoder)
}
