//! `assay results`.

use std::process::ExitCode;

use assay_api::{JobId, JobResult, JobState};

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Outcome, exit};
use crate::{jobs, output, report, speed};

/// Print the results of a job: a table, the method and the warnings.
///
/// Groups stand below their dataset. With several jobs, one table has them all. Of a job that
/// failed or was cancelled it has the datasets that had ended before.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Results {
    /// Ids of the jobs
    #[arg(value_name = "JOB", value_parser = job_id, required = true)]
    ids: Vec<JobId>,
    /// Also list what each device did
    #[arg(long, conflicts_with = "json")]
    devices: bool,
    /// Print the server's JSON, a line for each job
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(results: &Results) -> Outcome {
    let client = results.server.client()?;
    let mut shown = Vec::new();
    let mut reasons = Vec::new();
    for id in &results.ids {
        let (answer, why) = get_ended(&client, *id).await?;
        if results.json {
            output::line(answer.text);
        } else {
            let mut result = answer.value;
            if why.is_some() {
                result.datasets.retain(|dataset| dataset.nll.is_some());
            }
            if why.is_none() || !result.datasets.is_empty() {
                shown.push(result);
            }
        }
        reasons.extend(why.map(|why| (id, why)));
    }
    if !shown.is_empty() {
        output::line(report::render(&shown, output::width()));
        for result in shown.iter().filter(|_| results.devices) {
            if shown.len() > 1 {
                output::line(format_args!("devices of job {}", result.job_id));
            }
            output::line(speed::devices(result, output::width()));
        }
    }
    for (id, why) in &reasons {
        if results.ids.len() > 1 {
            eprintln!("assay: {id}: {why}");
        } else {
            eprintln!("assay: {why}");
        }
    }
    Ok(if reasons.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

/// The results, and why the job ended without success if it did.
async fn get_ended(
    client: &Client,
    id: JobId,
) -> Result<(Answer<JobResult>, Option<String>), ClientError> {
    let answer = get(client, id, Retry::Interrupted).await?;
    if answer.value.complete {
        return Ok((answer, None));
    }
    let job = jobs::get(client, id, Retry::Always).await?.value;
    if job.state == JobState::Succeeded {
        // It ended between the two answers.
        return Ok((get(client, id, Retry::Always).await?, None));
    }
    Ok((answer, job.why_unsuccessful("the job")))
}

pub(crate) async fn get(
    client: &Client,
    id: JobId,
    retry: Retry,
) -> Result<Answer<JobResult>, ClientError> {
    client.get(&format!("/jobs/{id}/results"), retry).await
}

/// Prints the table of jobs that have succeeded.
pub(crate) async fn print(client: &Client, ids: &[JobId]) -> Result<(), ClientError> {
    let mut results = Vec::new();
    for id in ids {
        results.push(get(client, *id, Retry::Always).await?.value);
    }
    output::line(report::render(&results, output::width()));
    Ok(())
}
