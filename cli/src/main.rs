//! The program `assay`: runs the service on one machine, and talks to it.

mod archive;
mod aside;
mod cancel;
mod client;
mod compare;
mod completions;
mod dataset;
mod datasets;
mod doctor;
mod documents;
mod ended;
mod failure;
mod follow;
mod gate;
mod inspect;
mod job;
mod job_report;
mod jobs;
mod keys;
mod method;
mod numbers;
mod output;
mod plan;
mod precision;
mod profile;
mod report;
mod results;
mod saved;
mod selector;
mod speed;
mod submit;
mod table;
mod tokens;
mod up;
mod watch;
mod workers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::EXIT_CODES;

/// Exact, reproducible perplexities of language models, as a service.
#[derive(Parser)]
#[command(name = "assay", version, after_help = format!(
    "{EXIT_CODES}\nOf `assay gate` 1 and 2 are verdicts: see its --help."
))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Up),
    Doctor(doctor::Doctor),
    Submit(Box<submit::Submit>),
    Plan(Box<plan::Plan>),
    Jobs(jobs::Jobs),
    Watch(watch::Watch),
    Workers(workers::Workers),
    Results(results::Results),
    Compare(compare::Compare),
    Gate(gate::Gate),
    Documents(documents::Documents),
    Tokens(tokens::Tokens),
    Report(job_report::Report),
    Archive(archive::Archive),
    Cancel(cancel::Cancel),
    Inspect(inspect::Inspect),
    Profile(Box<profile::Profile>),
    Datasets(datasets::Datasets),
    Keys(keys::Keys),
    Completions(completions::Completions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Up(up) => return up::run(&up).await,
        Command::Doctor(doctor) => doctor::run(&doctor).await,
        Command::Submit(submit) => submit::run(&submit).await,
        Command::Plan(plan) => plan::run(&plan).await,
        Command::Jobs(jobs) => jobs::run(&jobs).await,
        Command::Watch(watch) => watch::run(&watch).await,
        Command::Workers(workers) => workers::run(&workers).await,
        Command::Results(results) => results::run(&results).await,
        Command::Compare(compare) => compare::run(&compare).await,
        Command::Gate(gate) => gate::run(&gate).await,
        Command::Documents(documents) => documents::run(&documents).await,
        Command::Tokens(tokens) => tokens::run(&tokens).await,
        Command::Report(report) => job_report::run(&report).await,
        Command::Archive(archive) => archive::run(&archive).await,
        Command::Cancel(cancel) => cancel::run(&cancel).await,
        Command::Inspect(inspect) => inspect::run(&inspect).await,
        Command::Profile(profile) => profile::run(&profile).await,
        Command::Datasets(datasets) => datasets::run(&datasets).await,
        Command::Keys(keys) => keys::run(&keys).await,
        Command::Completions(completions) => return completions::run(&completions),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("assay: {failure}");
        failure.exit_code()
    })
}
