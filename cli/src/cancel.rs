//! `assay cancel`.

use std::process::ExitCode;

use assay_api::{Job, JobId};
use reqwest::Method;

use crate::client::{Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Outcome};
use crate::output;

/// Cancel a job. Its running shards stop within seconds; a job that has ended stays as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Cancel {
    /// Id of the job
    #[arg(value_parser = job_id)]
    id: JobId,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(cancel: &Cancel) -> Outcome {
    let path = format!("/jobs/{}", cancel.id);
    let client = cancel.server.client();
    let answer = client
        .call::<Job>(Method::DELETE, &path, Retry::Interrupted, |request| request)
        .await?;
    if cancel.json {
        output::line(answer.text);
    } else {
        output::line(format_args!(
            "{} {}",
            answer.value.id,
            answer.value.state.as_str()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
