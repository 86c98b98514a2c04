//! `assay up`: the whole service on one machine.
//!
//! The database, the server and the workers are child processes, each watched by a task that
//! starts it again when it dies. They are started in this order and stopped in the reverse one,
//! and the kernel ends them if this process is killed.

mod backoff;
mod database;
mod server;
mod service;
mod state;

use std::future::pending;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::database::Database;
use self::service::{Service, Watched};
use self::state::StateDirectory;
use crate::{exit, output};

/// Run the service on this machine: a private PostgreSQL, the server and workers.
///
/// Prints `listening on http://HOST:PORT` on stdout once jobs can be posted; the logs go to
/// stderr. Ctrl-C or SIGTERM stops everything in order, a second one at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Address to listen on; port 0 picks a free port
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "ASSAY_LISTEN",
        default_value = "127.0.0.1:8080"
    )]
    listen: String,
    /// Directory that holds the checkpoints
    #[arg(
        long,
        value_name = "DIR",
        env = "ASSAY_MODEL_ROOT",
        default_value = "models"
    )]
    model_root: PathBuf,
    /// Directory that holds the datasets
    #[arg(
        long,
        value_name = "DIR",
        env = "ASSAY_DATA_ROOT",
        default_value = "data"
    )]
    data_root: PathBuf,
    /// Directory for the private PostgreSQL and the caches
    #[arg(
        long,
        value_name = "DIR",
        env = "ASSAY_STATE_DIR",
        default_value = "state"
    )]
    state_dir: PathBuf,
    /// Number of workers, each with all of --devices
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Devices of a worker, such as `cpu:0`, `cpu:0-1` or `cuda:0,cuda:1` [default: all GPUs, or
    /// else all cores as one]
    #[arg(long, value_name = "SPEC", env = "ASSAY_DEVICES")]
    devices: Option<String>,
    /// An existing PostgreSQL to use instead of a private one
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

/// What runs, in the order in which it was started.
#[derive(Default)]
struct Running {
    database: Option<Watched>,
    server: Option<Watched>,
    workers: Vec<Watched>,
}

pub(crate) async fn run(up: &Up) -> ExitCode {
    match supervise(up).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("assay up: {error:#}");
            ExitCode::from(exit::UP_FAILED)
        }
    }
}

async fn supervise(up: &Up) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    // Held until everything has stopped.
    let state = StateDirectory::lock(&up.state_dir)?;
    let mut running = Running::default();
    let service = async {
        let address = start(up, &state, &mut running).await?;
        output::line(format_args!("listening on http://{address}"));
        // From here on the watching tasks do the work.
        pending::<anyhow::Result<()>>().await
    };
    let outcome = tokio::select! {
        outcome = service => outcome,
        () = signals.next() => {
            eprintln!("assay up: stopping; once more to stop at once");
            Ok(())
        }
    };
    tokio::select! {
        () = running.stop() => outcome,
        // The runtime drops the tasks, and a child that is dropped is killed.
        () = signals.next() => outcome.and(Err(anyhow::anyhow!("stopped at once"))),
    }
}

/// Starts everything and returns the address of the server.
async fn start(up: &Up, state: &StateDirectory, running: &mut Running) -> anyhow::Result<String> {
    for (root, flag) in [
        (&up.model_root, "--model-root"),
        (&up.data_root, "--data-root"),
    ] {
        ensure!(
            root.is_dir(),
            "{} is no directory; create it or give {flag}",
            root.display()
        );
    }
    let database = match &up.database_url {
        Some(url) => Database::existing(url),
        None => Database::private(&state.path().join("postgres")).await?,
    };
    running.database = database.watcher;

    let server = Service::new("assay-server", "server", &database.url)?
        .arguments([
            "serve".as_ref(),
            "--model-root".as_ref(),
            up.model_root.as_os_str(),
        ])
        .arguments(["--data-root".as_ref(), up.data_root.as_os_str()]);
    let (watched, address) = server::start(server, &up.listen, state.path()).await?;
    running.server = Some(watched);

    for number in 1..=up.workers {
        let devices = up
            .devices
            .iter()
            .flat_map(|spec| ["--devices".as_ref(), spec.as_ref()]);
        let worker = Service::new("assay-worker", &format!("worker {number}"), &database.url)?
            .arguments([
                "run".as_ref(),
                "--model-root".as_ref(),
                up.model_root.as_os_str(),
            ])
            .arguments(["--data-root".as_ref(), up.data_root.as_os_str()])
            .arguments(["--state-dir".as_ref(), state.path().as_os_str()])
            .arguments(devices);
        let child = worker.spawn()?;
        running.workers.push(Watched::service(worker, child));
    }
    Ok(address)
}

impl Running {
    /// Workers give their leases back to the database, so it goes last.
    async fn stop(self) {
        let stopping: Vec<_> = self.workers.into_iter().map(Watched::stop).collect();
        for worker in stopping {
            worker.await;
        }
        for watched in [self.server, self.database].into_iter().flatten() {
            watched.stop().await;
        }
    }
}

/// The signals that stop the service.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
