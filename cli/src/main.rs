//! The program `assay`: runs the service on one machine, and talks to it.

mod cancel;
mod client;
mod follow;
mod jobs;
mod numbers;
mod output;
mod results;
mod submit;
mod table;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::client::ClientError;

/// Exit codes: part of the program's interface, and said in `--help`.
mod exit {
    pub(crate) const JOB_NOT_SUCCEEDED: u8 = 1;
    pub(crate) const UP_FAILED: u8 = 1;
    pub(crate) const SERVER: u8 = 3;
}

const EXIT_CODES: &str = "Exit codes:
  0  done; with --wait: the job succeeded
  1  the job failed or was cancelled; the service could not start
  2  wrong usage
  3  the server cannot be reached or refused the request";

/// Exact, reproducible perplexities of language models, as a service.
#[derive(Parser)]
#[command(name = "assay", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Up),
    Submit(submit::Submit),
    Results(results::Results),
    Jobs(jobs::Jobs),
    Cancel(cancel::Cancel),
}

/// What a command of the client ends with.
type Outcome = Result<ExitCode, ClientError>;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(up) => return up::run(&up).await,
        Command::Submit(submit) => submit::run(&submit).await,
        Command::Results(results) => results::run(&results).await,
        Command::Jobs(jobs) => jobs::run(&jobs).await,
        Command::Cancel(cancel) => cancel::run(&cancel).await,
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("assay: {error}");
        ExitCode::from(exit::SERVER)
    })
}
