//! `assay-worker`: claims shards and scores them.

use std::process::ExitCode;

use assay_worker::{Config, doctor, run};
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
    Doctor(Config),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Run(config) => run(config),
        Command::Doctor(config) => doctor(&config),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("assay-worker: {error:#}");
            ExitCode::FAILURE
        }
    }
}
