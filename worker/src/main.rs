//! `assay-worker`: claims shards and scores them.

use std::process::ExitCode;

use assay_worker::{Config, RunError, doctor, run};
use clap::{Parser, Subcommand};

/// Claims shards of evaluation jobs and scores them on the devices of this host.
#[derive(Parser)]
#[command(name = "assay-worker", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Claim and score until SIGTERM or SIGINT. The running micro-batch ends, what is claimed is
    /// given back, and the exit code is 0.
    Run(Config),
    /// Say whether this host is fit to run: one line a check, exit code 1 if one fails.
    Doctor {
        #[command(flatten)]
        config: Config,
        /// Print each check as a JSON object: `check`, `ok`, `detail`, `remedy`
        #[arg(long)]
        json: bool,
    },
}

/// Exit code of settings that are refused, as clap's own: trying again is of no use.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let (error, code) = match Args::parse().command {
        Command::Run(config) => match run(config) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error @ RunError::Settings(_)) => (error.to_string(), WRONG_USAGE.into()),
            Err(error @ RunError::Failed(_)) => (error.to_string(), ExitCode::FAILURE),
        },
        Command::Doctor { config, json } => match doctor(&config, json) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => (format!("{error:#}"), ExitCode::FAILURE),
        },
    };
    eprintln!("assay-worker: {error}");
    code
}
