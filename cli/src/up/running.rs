//! A service on this machine while it runs.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::database::Database;
use super::service::{Refusals, Service, Watched};
use super::state::StateDirectory;
use super::{Host, Hub, server};

/// What a service is made of.
pub(crate) struct Settings<'a> {
    /// Who starts it, for messages.
    pub(crate) command: &'static str,
    /// Address to listen on.
    pub(crate) listen: &'a str,
    /// Number of workers.
    pub(crate) workers: usize,
    /// Folders, devices and database.
    pub(crate) host: &'a Host,
    /// The hub.
    pub(crate) hub: &'a Hub,
    /// File for what the workers spend their time on.
    pub(crate) profile: Option<&'a Path>,
    /// Whether the programs log no more than warnings, unless `RUST_LOG` says otherwise.
    pub(crate) is_quiet: bool,
}

/// What runs, in the order in which it was started.
#[derive(Default)]
struct Running {
    database: Option<Watched>,
    server: Option<Watched>,
    workers: Vec<Watched>,
}

/// Starts a service, does `work` with its address, and stops the service in order. A signal ends
/// the work; then there is nothing of it.
///
/// # Errors
/// Something cannot be started or refuses its settings, or a second signal stops it at once.
pub(crate) async fn with_service<T>(
    settings: &Settings<'_>,
    work: impl AsyncFnOnce(String) -> T,
) -> anyhow::Result<Option<T>> {
    let mut signals = Signals::listen()?;
    // Held until everything has stopped.
    let state = StateDirectory::lock(&settings.host.state_dir)?;
    let mut running = Running::default();
    let (refusals, mut refused) = mpsc::unbounded_channel();
    let service = async {
        let address = start(settings, &state, &mut running, &refusals).await?;
        tokio::select! {
            done = work(address) => Ok(Some(done)),
            refused = refused.recv() => match refused {
                Some(name) => bail!(
                    "{name} refuses its settings, as it says above; correct them and start again"
                ),
                None => unreachable!("`refusals` is a sender and lives"),
            },
        }
    };
    let outcome = tokio::select! {
        outcome = service => outcome,
        () = signals.next() => {
            eprintln!("{}: stopping; once more to stop at once", settings.command);
            Ok(None)
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
    settings: &Settings<'_>,
    state: &StateDirectory,
    running: &mut Running,
    refusals: &Refusals,
) -> anyhow::Result<String> {
    let host = settings.host;
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

    let service = |program, name: &str| {
        let service = Service::new(program, name, &database.url)?;
        anyhow::Ok(service.quiet(settings.is_quiet))
    };
    let server = service("assay-server", "server")?
        .arguments(["serve".as_ref()])
        .arguments(host.folders(state.path()))
        .arguments(settings.hub.arguments());
    let refusals = || refusals.clone();
    let (watched, address) =
        server::start(server, settings.listen, state.path(), refusals()).await?;
    running.server = Some(watched);

    let profile = settings.profile.iter();
    let profile: Vec<&OsStr> = profile
        .flat_map(|file| ["--profile".as_ref(), file.as_os_str()])
        .collect();
    for number in 1..=settings.workers {
        let worker = service("assay-worker", &format!("worker {number}"))?
            .arguments(["run".as_ref()])
            .arguments(host.folders(state.path()))
            .arguments(host.devices())
            .arguments(settings.hub.arguments())
            .arguments(profile.iter().copied());
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
