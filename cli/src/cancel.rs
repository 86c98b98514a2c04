//! `assay cancel`.

use std::process::ExitCode;

use assay_api::{ErrorCode, Job, JobId};
use reqwest::Method;

use crate::client::{ClientError, Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Outcome};
use crate::{jobs, output};

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
    let client = cancel.server.client()?;
    let answer = client
        .call::<Job>(Method::DELETE, &path, Retry::Interrupted, |request| request)
        .await;
    let (answer, ended) = match answer {
        Err(ClientError::Refused(problem)) if problem.code == ErrorCode::JobEnded => {
            (jobs::get(&client, cancel.id, Retry::Always).await?, true)
        }
        answer => (answer?, false),
    };
    if cancel.json {
        output::line(answer.text);
    } else {
        output::line(format_args!(
            "{} {}{}",
            answer.value.id,
            if ended { "has ended already: " } else { "" },
            answer.value.state.as_str()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
