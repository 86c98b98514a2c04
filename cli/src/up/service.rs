//! A child process that is started again when it dies.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use assay_process::{Child, Signal, Terminal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;

/// A worker ends its running micro-batch first.
const STOP_LIMIT: Duration = Duration::from_mins(1);

/// The exit code of a program that refuses its settings, as clap has it: with the same settings it
/// would be refused again.
const REFUSED: i32 = 2;

/// The program of that file name beside this one.
pub(crate) fn sibling(program: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let path = own.with_file_name(program);
    anyhow::ensure!(
        path.is_file(),
        "{} does not exist; the programs of Assay belong in one directory (`make build`)",
        path.display()
    );
    Ok(path)
}

/// A program to run as a child.
#[derive(Clone, Debug)]
pub(super) struct Service {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    database_url: String,
    is_quiet: bool,
}

impl Service {
    /// The program of that file name beside this one. `name` is for messages.
    pub(super) fn new(program: &str, name: &str, database_url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            program: sibling(program)?,
            arguments: Vec::new(),
            database_url: database_url.to_owned(),
            is_quiet: false,
        })
    }

    pub(super) fn arguments<'a>(mut self, more: impl IntoIterator<Item = &'a OsStr>) -> Self {
        self.arguments.extend(more.into_iter().map(OsStr::to_owned));
        self
    }

    /// Whether it logs no more than warnings, unless `RUST_LOG` says otherwise.
    pub(super) fn quiet(mut self, is_quiet: bool) -> Self {
        self.is_quiet = is_quiet;
        self
    }

    pub(super) fn spawn(&self) -> anyhow::Result<Child> {
        self.try_spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))
    }

    fn try_spawn(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        // In the environment, because every user can read the arguments of a process.
        command
            .args(&self.arguments)
            .env("DATABASE_URL", &self.database_url);
        if self.is_quiet && std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "warn");
        }
        // The stdout of `assay up` has one line, for the program that started it.
        let log = io::stderr().as_fd().try_clone_to_owned()?;
        command.stdin(Stdio::null()).stdout(log);
        Child::spawn(command, Terminal::Detached, Signal::KILL)
    }
}

/// Where the name of a service that refuses its settings is sent.
pub(super) type Refusals = mpsc::UnboundedSender<String>;

/// A child that a task watches. When the task is dropped the child is killed.
#[derive(Debug)]
pub(super) struct Watched {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Watched {
    /// Watches the first run of a service, and starts it again when it ends. If it refuses its
    /// settings, that is sent to `refusals` instead.
    pub(super) fn service(service: Service, first: Child, refusals: Refusals) -> Self {
        Self::task(|stop| watch(service, first, stop, refusals))
    }

    /// A task that ends in order when `stop` resolves.
    pub(super) fn task<F>(watch: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Self {
            stop,
            task: tokio::spawn(watch(stopped)),
        }
    }

    /// Asks for the orderly end at once; the future waits for it.
    pub(super) fn stop(self) -> impl Future<Output = ()> {
        // Without a receiver the task has ended, which the future sees.
        let _ = self.stop.send(());
        async {
            if let Err(error) = self.task.await {
                eprintln!("assay up: {error}");
            }
        }
    }
}

async fn watch(
    service: Service,
    first: Child,
    mut stop: oneshot::Receiver<()>,
    refusals: Refusals,
) {
    let mut backoff = Backoff::new();
    let mut child = first;
    loop {
        let started = Instant::now();
        tokio::select! {
            status = child.ended() => {
                if status.code() == Some(REFUSED) {
                    // Without a receiver everything is being stopped.
                    let _ = refusals.send(service.name);
                    return;
                }
                report(&service.name, status);
            }
            _ = &mut stop => return end(&service.name, &child).await,
        }
        let mut run = started.elapsed();
        child = loop {
            let pause = backoff.after(run);
            eprintln!(
                "assay up: starting {} again in {} s",
                service.name,
                pause.as_secs_f64()
            );
            tokio::select! {
                () = sleep(pause) => {}
                _ = &mut stop => return,
            }
            match service.spawn() {
                Ok(child) => break child,
                Err(error) => eprintln!("assay up: {error:#}"),
            }
            run = Duration::ZERO;
        };
    }
}

pub(super) fn report(name: &str, status: ExitStatus) {
    eprintln!("assay up: {name} ended ({status})");
}

async fn end(name: &str, child: &Child) {
    child.signal(Signal::TERM);
    if timeout(STOP_LIMIT, child.ended()).await.is_err() {
        eprintln!(
            "assay up: {name} did not stop within {} s and is killed",
            STOP_LIMIT.as_secs()
        );
    }
}
