//! Runs `initdb` and `postgres`.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use assay_process::{Child, Signal, Terminal};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::time::{Instant, sleep};

use crate::PostgresError;
use crate::binaries::Binaries;
use crate::place::Place;

/// The superuser of the cluster, and the name of its database.
pub(crate) const NAME: &str = "assay";

/// Recovery after a crash may take a while; connections are refused until it is over.
const READY_LIMIT: Duration = Duration::from_mins(2);
const READY_POLL: Duration = Duration::from_millis(20);
const TAIL_LINES: usize = 12;

/// Makes the cluster. It appears at its final path only when it is whole.
pub(crate) async fn create_cluster(
    place: &Place,
    binaries: &Binaries,
    durable: bool,
) -> Result<(), PostgresError> {
    let data = place.data();
    let unfinished = data.with_extension("unfinished");
    place.private_directory(&unfinished)?;

    let mut command = Command::new(binaries.program("initdb"));
    command
        .arg("--pgdata")
        .arg(&unfinished)
        .args(["--username", NAME, "--encoding", "UTF8", "--locale", "C"])
        .args(["--auth-local", "trust", "--auth-host", "reject"]);
    if !durable {
        command.arg("--no-sync");
    }
    let status = spawn(place, command, Signal::KILL)?.ended().await;
    if !status.success() {
        return Err(ended(place, "initdb", status));
    }
    fs::rename(&unfinished, &data).map_err(PostgresError::io("rename", &unfinished))
}

/// Starts the server; it does not take connections yet.
pub(crate) fn launch(
    place: &Place,
    binaries: &Binaries,
    socket_directory: &str,
    durable: bool,
) -> Result<Child, PostgresError> {
    let mut command = Command::new(binaries.program("postgres"));
    command
        .arg("-D")
        .arg(place.data())
        .args(["-k", socket_directory])
        .args([
            "-c",
            "listen_addresses=",
            "-c",
            "unix_socket_permissions=0700",
            "-c",
            "logging_collector=off",
            "-c",
            "log_checkpoints=off",
        ]);
    if !durable {
        // synchronous_commit stays on: an immediate restart of the server, which tests do, must
        // lose no commit. The operating system keeps what the server has written.
        command.args([
            "-c",
            "fsync=off",
            "-c",
            "full_page_writes=off",
            "-c",
            "max_connections=300",
        ]);
    }
    spawn(place, command, Signal::INT)
}

/// Connects to the maintenance database as soon as the server lets it.
pub(crate) async fn ready(
    place: &Place,
    server: &Child,
    socket_directory: &str,
) -> Result<PgConnection, PostgresError> {
    let options = PgConnectOptions::new_without_pgpass()
        .socket(socket_directory)
        .username(NAME)
        .database("postgres");
    let deadline = Instant::now() + READY_LIMIT;
    loop {
        let error = match options.connect().await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        tokio::select! {
            status = server.ended() => return Err(ended(place, "postgres", status)),
            () = sleep(READY_POLL) => {}
        }
        if Instant::now() >= deadline {
            return Err(PostgresError::NotReady {
                seconds: READY_LIMIT.as_secs(),
                source: error,
                log: place.log(),
                tail: tail(&place.log()),
            });
        }
    }
}

/// Starts a program of PostgreSQL as the cluster's user, with a fresh log.
fn spawn(
    place: &Place,
    mut command: Command,
    on_parent_death: Signal,
) -> Result<Child, PostgresError> {
    let log = place.log();
    let output = File::create(&log).map_err(PostgresError::io("create", &log))?;
    let errors = output
        .try_clone()
        .map_err(PostgresError::io("open", &log))?;
    // The caller's directory may be closed to the cluster's user, and its locale may be one that
    // this machine does not have.
    command.current_dir("/").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    if let Some(account) = place.account() {
        account.apply(&mut command);
    }
    let program = command.get_program().to_owned();
    Child::spawn(command, Terminal::Detached, on_parent_death)
        .map_err(PostgresError::io("run", program))
}

fn ended(place: &Place, program: &'static str, status: ExitStatus) -> PostgresError {
    let log = place.log();
    PostgresError::Ended {
        program,
        status,
        tail: tail(&log),
        log,
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
