//! `assay doctor`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use assay_api::Check;
use assay_postgres::{Cluster, Settings};
use tokio::process::Command;
use tokio::time::timeout;

use crate::failure::{EXIT_CODES, Failure, Outcome, exit};
use crate::output;
use crate::up::{Host, sibling};

/// Loading libtorch takes seconds; a file system that hangs takes for ever.
const LIMIT: Duration = Duration::from_mins(1);
/// Nobody listens on this port.
const NOWHERE: &str = "postgres://127.0.0.1:1/none";

/// Say whether this machine is fit to run the service, and what to do if it is not.
///
/// Asks `assay-server doctor` and `assay-worker doctor`. Without --database-url a private
/// PostgreSQL is started for the time of the checks, as `assay up` would.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Doctor {
    /// Print each check as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: Host,
}

pub(crate) async fn run(doctor: &Doctor) -> Outcome {
    let mut findings = Findings {
        json: doctor.json,
        failed: 0,
    };
    let host = &doctor.host;
    // Removed when the cluster has stopped: it is declared before.
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::Failed(format!("cannot make a temporary folder: {error}")))?;
    let mut private = None;
    let url = match &host.database_url {
        Some(url) => Some(url.clone()),
        None => match postgres(folder.path()).await {
            Ok((cluster, url)) => {
                findings.add(&Check::passed(
                    "PostgreSQL",
                    "a private one starts and takes the schema",
                ));
                private = Some(cluster);
                Some(url)
            }
            Err(check) => {
                findings.add(&check);
                None
            }
        },
    };
    for (program, more) in [
        ("assay-server", Vec::new()),
        ("assay-worker", host.devices().collect()),
    ] {
        let arguments = ["doctor".as_ref(), "--json".as_ref()].into_iter();
        let arguments = arguments.chain(host.folders(&host.state_dir)).chain(more);
        for check in ask(program, arguments, url.as_deref().unwrap_or(NOWHERE)).await {
            // What they say of a database that could not be started is said above.
            let consequence = url.is_none() && !check.ok && is_of_database(&check);
            if !consequence {
                findings.add(&check);
            }
        }
    }
    if let Some(cluster) = private {
        cluster.stop().await;
    }
    Ok(findings.end())
}

fn is_of_database(check: &Check) -> bool {
    ["database", "migrations", "clock"]
        .iter()
        .any(|subject| check.check.contains(subject))
}

/// A private PostgreSQL with the schema.
async fn postgres(folder: &Path) -> Result<(Cluster, String), Check> {
    let failed = |detail: String, remedy: &str| Check::failed("PostgreSQL", detail, remedy);
    let settings = Settings {
        directory: folder.join("postgres"),
        durable: false,
    };
    let cluster = Cluster::start(&settings).await.map_err(|error| {
        failed(
            error.to_string(),
            "install PostgreSQL's programs, or name a database in DATABASE_URL",
        )
    })?;
    let url = cluster.url();
    match output_of("assay-server", ["migrate".as_ref()], &url).await {
        Ok(output) if output.status.success() => Ok((cluster, url)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(failed(said, "build all programs anew (`make build`)"))
        }
        Err(check) => Err(check),
    }
}

/// What the doctor of a program says.
async fn ask<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    database_url: &str,
) -> Vec<Check> {
    let output = match output_of(program, arguments, database_url).await {
        Ok(output) => output,
        Err(check) => return vec![check],
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let checks: Result<Vec<Check>, _> = said.lines().map(serde_json::from_str).collect();
    match checks {
        Ok(checks) if !checks.is_empty() => checks,
        _ => {
            let errors = String::from_utf8_lossy(&output.stderr);
            vec![Check::failed(
                program,
                format!("no answer ({}): {}", output.status, errors.trim()),
                "correct what it says; if that is nothing, build all programs anew (`make build`)",
            )]
        }
    }
}

async fn output_of<'a>(
    program: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
    database_url: &str,
) -> Result<std::process::Output, Check> {
    let path = sibling(program)
        .map_err(|error| Check::failed(program, error.to_string(), "build it there"))?;
    let arguments: Vec<OsString> = arguments.into_iter().map(OsStr::to_owned).collect();
    // The URL is in the environment, because every user can read the arguments of a process.
    let output = Command::new(path)
        .args(arguments)
        .env("DATABASE_URL", database_url)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let seconds = LIMIT.as_secs();
    match timeout(LIMIT, output).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(Check::failed(
            program,
            format!("it cannot be started: {error}"),
            "build it anew (`make build`)",
        )),
        Err(_) => Err(Check::failed(
            program,
            format!("it did not end within {seconds} s"),
            "look whether a file system or the database hangs",
        )),
    }
}

/// What is printed, and what comes of it.
struct Findings {
    json: bool,
    failed: usize,
}

impl Findings {
    fn add(&mut self, check: &Check) {
        self.failed += usize::from(!check.ok);
        if self.json {
            return output::json(check);
        }
        let width = output::width();
        let verdict = if check.ok { "ok    " } else { "FAIL  " };
        let line = format!("{}: {}", check.check, check.detail);
        output::line(output::labelled(verdict, &line, width));
        if let Some(remedy) = &check.remedy {
            output::line(output::labelled("      -> ", remedy, width));
        }
    }

    fn end(self) -> ExitCode {
        if self.failed == 0 {
            return ExitCode::SUCCESS;
        }
        if !self.json {
            let checks = if self.failed == 1 { "check" } else { "checks" };
            eprintln!("assay: {} {checks} failed", self.failed);
        }
        ExitCode::from(exit::FAILED)
    }
}
