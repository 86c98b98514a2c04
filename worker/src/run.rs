//! The life of a worker process.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use assay_api::DeviceStatus;
use assay_store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::budget::Budget;
use crate::committer::{Committer, WAITING};
use crate::config::{Config, LogFormat};
use crate::cores;
use crate::device::Device;
use crate::device_kind::device_kind;
use crate::devices::{DeviceSpec, parse_devices};
use crate::heartbeat::Heartbeat;
use crate::lease::Leases;
use crate::ledger::Ledger;
use crate::profile::Profiler;
use crate::rate::Rate;
use crate::resources::{Host, ResourceCache};
use crate::restart::{Restart, restart};
use crate::retry::retry;
use crate::slot::Slot;

/// Why a worker did not end in order.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit each other or this host, and will not on another try.
    #[error("{0:#}")]
    Settings(anyhow::Error),
    /// Something failed that may not fail again.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}

/// Runs a worker until SIGTERM or SIGINT.
///
/// # Errors
/// The settings or the host are unfit, or the ledger fails for good.
pub fn run(config: Config) -> Result<(), RunError> {
    config.validate().map_err(RunError::Settings)?;
    start_log(config.log);
    let devices = devices(&config).map_err(RunError::Settings)?;
    let host = Host::open(&config).map_err(RunError::Settings)?;
    let profiler = Profiler::open(config.profile.as_deref()).map_err(RunError::Settings)?;
    Ok(compute(config, devices, host, profiler)?)
}

fn compute(
    config: Config,
    devices: Vec<DeviceSpec>,
    host: Host,
    profiler: Profiler,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("async")
        .enable_all()
        .build()?;
    let ended = runtime.block_on(serve(config, devices, host, profiler));
    // A planning that was left in the middle may still run on a blocking thread.
    runtime.shutdown_background();
    match ended? {
        Ended::InOrder => Ok(()),
        Ended::Hung => anyhow::bail!("stopped while a device was hung: what it held is lost"),
        Ended::ToRestart => Err(restart()).context("cannot start anew"),
    }
}

/// How a worker ended.
enum Ended {
    /// After a signal.
    InOrder,
    /// After a signal, but a device is hung.
    Hung,
    /// A device is hung.
    ToRestart,
}

/// The devices of the settings, or all of this host's. CUDA is loaded here, which must happen
/// while the process has one thread.
///
/// # Errors
/// The list is malformed, names what this host has not, or CUDA cannot be loaded.
pub(crate) fn devices(config: &Config) -> anyhow::Result<Vec<DeviceSpec>> {
    let cores = cores::available().context("cannot list the cores")?.len();
    let cuda = assay_decoder::runtime::load_cuda()
        .map(|()| usize::try_from(tch::Cuda::device_count()).unwrap_or(0));
    let devices = match (&config.devices, &cuda) {
        (Some(list), _) => parse_devices(list, cores).context("--devices")?,
        (None, Ok(gpus)) if *gpus > 0 => (0..*gpus).map(DeviceSpec::Cuda).collect(),
        (None, _) => vec![DeviceSpec::Cpu {
            first: 0,
            last: cores.saturating_sub(1),
        }],
    };
    for device in &devices {
        if let DeviceSpec::Cuda(index) = device {
            let gpus = cuda
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{device}: {error}"))?;
            anyhow::ensure!(index < gpus, "{device}: this host has {gpus} GPUs");
        }
    }
    Ok(devices)
}

fn start_log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,sqlx=warn"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
}

async fn serve(
    config: Config,
    specs: Vec<DeviceSpec>,
    host: Host,
    profiler: Profiler,
) -> anyhow::Result<Ended> {
    let signalled = CancellationToken::new();
    // The worker also stops for other reasons.
    let stopping = signalled.child_token();
    // Before anything is claimed, so that no signal finds the default handler.
    cancel_on_signals(signalled.clone())?;

    let statuses: Vec<DeviceStatus> = specs
        .iter()
        .map(|spec| DeviceStatus {
            name: spec.to_string(),
            kind: device_kind(spec),
        })
        .collect();

    let connections = u32::try_from(specs.len())? * 2 + 1;
    let store = connect(&config, connections, &stopping).await?;
    let heartbeat = Heartbeat {
        database_url: config.database_url.clone(),
        worker: uuid::Uuid::now_v7(),
        name: name(),
        devices: statuses.clone(),
        interval: config.heartbeat,
        lease: config.lease,
        stopping: stopping.clone(),
        restart: Restart::default(),
    };
    let restart = heartbeat.restart.clone();
    let worker = heartbeat.worker;
    let registration = heartbeat.registration();
    retry(&stopping, || {
        store.register_worker(&registration, config.lease, None)
    })
    .await?;
    tracing::info!(%worker, name = heartbeat.name, devices = ?statuses, "registered");

    let leases = Leases::new(config.device_patience);
    let ledger = Ledger {
        worker,
        store: store.clone(),
        stopping: stopping.clone(),
    };
    let faults = Arc::new(config.fault.clone().unwrap_or_default());
    faults.warn();
    // The heartbeat goes on while claims are given back.
    let ended = CancellationToken::new();
    let beating = heartbeat.start(leases.clone(), ended.clone())?;

    let resources = Arc::new(ResourceCache::new(host, store.clone()));
    let (results, ready) = mpsc::channel(WAITING);
    let committer = Committer {
        ledger: ledger.clone(),
        leases: leases.clone(),
        profiler: profiler.clone(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(async { Ok(committer.serve(ready).await?) });
    for (spec, status) in specs.iter().zip(statuses) {
        let budget = Budget::of(spec, &specs, config.memory_budget);
        let fast = config.fast_dtypes.clone();
        let (faults, profile) = (Arc::clone(&faults), profiler.clone());
        let slot = Slot {
            name: status.name,
            kind: status.kind,
            lease: config.lease,
            device: Device::start(spec.clone(), budget, fast, faults, profile).await?,
            rate: Rate::default(),
            ledger: ledger.clone(),
            resources: Arc::clone(&resources),
            leases: leases.clone(),
            results: results.clone(),
            profiler: profiler.clone(),
            handing_over: Duration::ZERO,
            is_hung: false,
        };
        tasks.spawn(slot.serve());
    }
    // The committer ends with the last slot.
    drop(results);
    let result = tokio::select! {
        result = finish(&mut tasks, &leases, &stopping) => result,
        // Something waits for the database for too long.
        () = restart.prepared.cancelled() => Ok(()),
    };
    if restart.decided.is_cancelled() {
        restart.prepared.cancelled().await;
        if let Err(error) = result {
            tracing::error!("{error:#}");
        }
        let is_asked_to_stop = signalled.is_cancelled();
        return Ok(if is_asked_to_stop {
            Ended::Hung
        } else {
            Ended::ToRestart
        });
    }
    // A database that did not answer until now is not waited for once more.
    let is_away = result.as_ref().is_err_and(is_database_away);
    let mut stopped = Ok(());
    if !is_away {
        stopped = retry(&stopping, || store.stop_worker(worker)).await;
    }
    ended.cancel();
    anyhow::ensure!(beating.join().is_ok(), "the heartbeat thread panicked");
    result?;
    stopped?;
    tracing::info!("stopped");
    Ok(Ended::InOrder)
}

fn is_database_away(error: &anyhow::Error) -> bool {
    error
        .downcast_ref()
        .is_some_and(assay_store::StoreError::is_transient)
}

/// Waits for the devices and the committer to end: after a signal, or because one failed, which
/// stops the others.
async fn finish(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    leases: &Leases,
    stopping: &CancellationToken,
) -> anyhow::Result<()> {
    let mut result = Ok(());
    let mut told = false;
    loop {
        let joined = tokio::select! {
            joined = tasks.join_next() => joined,
            () = stopping.cancelled(), if !told => {
                told = true;
                leases.stop_all();
                continue;
            }
        };
        match joined {
            None => return result,
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => result = Err(error),
            Some(Err(panic)) => result = Err(panic.into()),
        }
        if result.is_err() {
            stopping.cancel();
        }
    }
}

/// Connects, waiting for a database that is not up yet or not migrated yet.
async fn connect(
    config: &Config,
    connections: u32,
    stopping: &CancellationToken,
) -> anyhow::Result<Store> {
    const PATIENCE: u32 = 60;
    let mut tries = 0;
    loop {
        let attempt = async {
            let store = Store::connect(&config.database_url, connections).await?;
            store.ready().await?;
            Ok::<_, assay_store::StoreError>(store)
        };
        match attempt.await {
            Ok(store) => return Ok(store),
            Err(error) => {
                tries += 1;
                if tries >= PATIENCE || stopping.is_cancelled() {
                    return Err(error).context("cannot use the database of DATABASE_URL");
                }
                tracing::warn!(%error, "waiting for the database");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn cancel_on_signals(signalled: CancellationToken) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: the running micro-batches end, claims are given back");
        signalled.cancel();
    });
    Ok(())
}

/// Host and process.
fn name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}
