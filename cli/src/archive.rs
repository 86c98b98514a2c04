//! `assay archive`.

use std::path::PathBuf;
use std::process::ExitCode;

use assay_api::JobId;
use serde_json::json;
use tokio::fs::File;

use crate::aside::aside;
use crate::client::{ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::follow::transfer_bar;
use crate::numbers::bytes;
use crate::output;

/// Save all that a job has answered as a zip file.
///
/// It holds the job and its results as JSON and the documents as Parquet, also the tokens of a job
/// that was submitted with --token-output. The job must have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Archive {
    /// Id of the job
    #[arg(value_name = "JOB", value_parser = job_id)]
    id: JobId,
    /// Where to write it; a directory gets `JOB.zip` [default: .]
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = ".",
        hide_default_value = true
    )]
    output: PathBuf,
    /// Print the file and its size as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(archive: &Archive) -> Outcome {
    let path = if archive.output.is_dir() {
        archive.output.join(format!("{}.zip", archive.id))
    } else {
        archive.output.clone()
    };
    let unwritable = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot write {}: {error}", path.display()))
    };
    // Written aside, so that the file is whole or not there.
    let aside = aside(&path).map_err(|error| unwritable(&error))?;
    let file = aside.reopen().map_err(|error| unwritable(&error))?;
    let client = archive.server.client()?;
    let bar = transfer_bar();
    let url = format!("/jobs/{}/archive", archive.id);
    let written = client
        .download(&url, &mut File::from_std(file), &bar)
        .await?;
    bar.finish_and_clear();
    aside.persist(&path).map_err(|error| unwritable(&error))?;
    if archive.json {
        output::json(&json!({"file": path, "bytes": written}));
    } else {
        output::line(format_args!("{} ({})", path.display(), bytes(written)));
    }
    Ok(ExitCode::SUCCESS)
}
