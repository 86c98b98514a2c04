//! `assay results`.

use std::process::ExitCode;

use assay_api::{JobId, JobResult};

use crate::client::{Client, ClientError, Retry, ServerArgs, job_id};
use crate::table::render;
use crate::{Outcome, output};

/// Print the results of a job: a table, the method and the warnings.
#[derive(Debug, clap::Args)]
pub(crate) struct Results {
    /// Id of the job
    #[arg(value_parser = job_id)]
    id: JobId,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(results: &Results) -> Outcome {
    let client = results.server.client();
    print(&client, results.id, results.json, Retry::Interrupted).await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn print(
    client: &Client,
    id: JobId,
    json: bool,
    retry: Retry,
) -> Result<(), ClientError> {
    let answer = client
        .get::<JobResult>(&format!("/jobs/{id}/results"), retry)
        .await?;
    if json {
        output::line(answer.text);
    } else {
        output::line(render(&answer.value));
    }
    Ok(())
}
