//! `assay results`.

use std::process::ExitCode;

use assay_api::{JobId, JobResult};

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Outcome};
use crate::{output, report};

/// Print the results of a job: a table, the method and the warnings.
///
/// Groups stand below their dataset. With several jobs, one table has them all.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Results {
    /// Ids of the jobs
    #[arg(value_name = "JOB", value_parser = job_id, required = true)]
    ids: Vec<JobId>,
    /// Print the server's JSON, a line for each job
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(results: &Results) -> Outcome {
    let client = results.server.client();
    print(&client, &results.ids, results.json, Retry::Interrupted).await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn get(
    client: &Client,
    id: JobId,
    retry: Retry,
) -> Result<Answer<JobResult>, ClientError> {
    client.get(&format!("/jobs/{id}/results"), retry).await
}

pub(crate) async fn print(
    client: &Client,
    ids: &[JobId],
    json: bool,
    retry: Retry,
) -> Result<(), ClientError> {
    let mut results = Vec::new();
    for id in ids {
        let answer = get(client, *id, retry).await?;
        if json {
            output::line(answer.text);
        } else {
            results.push(answer.value);
        }
    }
    if !json {
        output::line(report::render(&results, output::width()));
    }
    Ok(())
}
