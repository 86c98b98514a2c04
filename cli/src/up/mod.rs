//! `assay up`: the whole service on one machine.
//!
//! The database, the server and the workers are child processes, each watched by a task that
//! starts it again when it dies. They are started in this order and stopped in the reverse one,
//! and the kernel ends them if this process is killed.

mod backoff;
mod database;
mod host;
mod hub;
mod server;
mod service;
mod state;

use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use self::database::Database;
pub(crate) use self::host::Host;
use self::hub::Hub;
pub(crate) use self::service::sibling;
use self::service::{Refusals, Service, Watched};
use self::state::StateDirectory;
use crate::failure::{EXIT_CODES, exit};
use crate::output;

/// Run the service on this machine: a private PostgreSQL, the server and workers.
///
/// Prints `listening on http://HOST:PORT` on stdout once jobs can be posted; the logs go to
/// stderr. Ctrl-C or SIGTERM stops everything in order, a second one at once. What dies is started
/// again; what refuses its settings ends the service.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Up {
    /// Address to listen on; port 0 picks a free port
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "ASSAY_LISTEN",
        default_value = "127.0.0.1:8080"
    )]
    listen: String,
    /// Number of workers, each with all of --devices
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    #[command(flatten)]
    host: Host,
    #[command(flatten)]
    hub: Hub,
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
            ExitCode::from(exit::FAILED)
        }
    }
}

async fn supervise(up: &Up) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    // Held until everything has stopped.
    let state = StateDirectory::lock(&up.host.state_dir)?;
    let mut running = Running::default();
    let (refusals, mut refused) = mpsc::unbounded_channel();
    let service = async {
        let address = start(up, &state, &mut running, &refusals).await?;
        output::line(format_args!("listening on http://{address}"));
        // From here on the watching tasks do the work.
        match refused.recv().await {
            Some(name) => {
                bail!("{name} refuses its settings, as it says above; correct them and start again")
            }
            None => unreachable!("`refusals` is a sender and lives"),
        }
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
async fn start(
    up: &Up,
    state: &StateDirectory,
    running: &mut Running,
    refusals: &Refusals,
) -> anyhow::Result<String> {
    let host = &up.host;
    for (root, flag) in [
        (&host.model_root, "--model-root"),
        (&host.data_root, "--data-root"),
    ] {
        ensure!(
            root.is_dir(),
            "{} is no directory; create it or give {flag}",
            root.display()
        );
    }
    let database = match &host.database_url {
        Some(url) => Database::existing(url),
        None => Database::private(&state.path().join("postgres")).await?,
    };
    running.database = database.watcher;

    let server = Service::new("assay-server", "server", &database.url)?
        .arguments(["serve".as_ref()])
        .arguments(host.folders(state.path()))
        .arguments(up.hub.arguments());
    let refusals = || refusals.clone();
    let (watched, address) = server::start(server, &up.listen, state.path(), refusals()).await?;
    running.server = Some(watched);

    for number in 1..=up.workers {
        let worker = Service::new("assay-worker", &format!("worker {number}"), &database.url)?
            .arguments(["run".as_ref()])
            .arguments(host.folders(state.path()))
            .arguments(host.devices())
            .arguments(up.hub.arguments());
        let child = worker.spawn()?;
        running
            .workers
            .push(Watched::service(worker, child, refusals()));
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
