//! `with-postgres COMMAND [ARGUMENT..]`: runs a command with `DATABASE_URL` pointing at a private
//! PostgreSQL, which lives as long as the command does, and ends with the command's status.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use anyhow::Context;
use assay_process::{Child, Signal, Terminal};
use assay_testkit::TestCluster;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("with-postgres: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> anyhow::Result<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments
        .next()
        .context("usage: with-postgres COMMAND [ARGUMENT..]")?;

    // From here on a signal no longer ends this process before the server is stopped. A terminal
    // sends Ctrl-C to the command as well.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;

    let cluster = TestCluster::start().await?;
    let mut command = Command::new(&program);
    command
        .args(arguments)
        .env("DATABASE_URL", cluster.cluster.url());
    let child = Child::spawn(command, Terminal::Shared, Signal::TERM)
        .with_context(|| format!("cannot run {}", program.display()))?;
    let status = loop {
        tokio::select! {
            status = child.ended() => break status,
            _ = interrupt.recv() => {}
            _ = terminate.recv() => child.signal(Signal::TERM),
        }
    };
    // As a shell does for a command that a signal ended.
    let code = status
        .code()
        .or_else(|| status.signal().map(|number| 128 + number));
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX))
}
