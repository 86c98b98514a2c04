//! `assay up`: the whole service on one machine.
//!
//! The database, the server and the workers are child processes, each watched by a task that
//! starts it again when it dies. They are started in this order and stopped in the reverse one,
//! and the kernel ends them if this process is killed.

mod backoff;
mod database;
mod host;
mod hub;
mod running;
mod server;
mod service;
mod state;

use std::future;
use std::process::ExitCode;

pub(crate) use self::host::Host;
pub(crate) use self::hub::Hub;
pub(crate) use self::running::{Settings, with_service};
pub(crate) use self::service::sibling;
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
    let settings = Settings {
        command: "assay up",
        listen: &up.listen,
        workers: up.workers,
        host: &up.host,
        hub: &up.hub,
        profile: None,
        is_quiet: false,
    };
    let serve = async |address: String| {
        output::line(format_args!("listening on http://{address}"));
        // From here on the watching tasks do the work.
        future::pending::<()>().await;
    };
    with_service(&settings, serve).await.map(drop)
}
