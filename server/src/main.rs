//! The program `assay-server`.

use std::io::IsTerminal;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use assay_server::{Config, DoctorConfig, KeysConfig, LogFormat, MigrateConfig, ProjectsConfig};
use clap::{Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The API server of Assay, an evaluation service for language models.
#[derive(Parser)]
#[command(name = "assay-server", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring the schema up to this program's and serve the API until SIGTERM or SIGINT.
    Serve(Config),
    /// Bring the schema up to this program's and exit. Concurrent callers wait for each other.
    Migrate(MigrateConfig),
    /// Check what the server needs: a line each, with what to do where something is wrong. Fails if
    /// something is.
    Doctor(DoctorConfig),
    /// Make, list and revoke keys, with nothing but access to the database.
    Keys(KeysConfig),
    /// Make, change and list projects: their priorities and quotas.
    Projects(ProjectsConfig),
    /// Print the API's OpenAPI document.
    Openapi,
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("assay-server: cannot start the async runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(Cli::parse().command));
    // What a request that was cut off still computes is not waited for.
    runtime.shutdown_background();
    code
}

async fn run(command: Command) -> ExitCode {
    let outcome = match command {
        Command::Serve(config) => serve(config).await,
        Command::Migrate(config) => {
            log_to_stderr(config.log);
            assay_server::migrate(&config).await
        }
        Command::Keys(config) => assay_server::manage_keys(&config).await,
        Command::Projects(config) => assay_server::manage_projects(&config).await,
        Command::Doctor(config) => assay_server::doctor(&config).await,
        // `print!` panics where a reader such as `head` has gone.
        Command::Openapi => std::io::stdout()
            .write_all(assay_server::openapi_json().as_bytes())
            .context("cannot print the document"),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("assay-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Config) -> anyhow::Result<()> {
    log_to_stderr(config.log);
    // Before the listener, so that a signal during the start is not lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let listener = TcpListener::bind(&config.listen).await.with_context(|| {
        format!(
            "cannot listen on {}: give another address with --listen",
            config.listen
        )
    })?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    };
    assay_server::run(config, listener, shutdown).await
}

fn log_to_stderr(format: LogFormat) {
    use tracing_subscriber::EnvFilter;

    // PostgreSQL's notices are of no use here.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn"));
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter);
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
