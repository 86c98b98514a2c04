//! `assay jobs`.

use std::ops::Range;
use std::process::ExitCode;

use assay_api::{Job, JobState, Page};
use clap::builder::PossibleValuesParser;

use crate::client::{Retry, ServerArgs};
use crate::numbers::grouped;
use crate::table::plain_table;
use crate::{Outcome, output};

/// List jobs, the newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct Jobs {
    /// Only jobs in this state
    #[arg(long, value_parser = PossibleValuesParser::new(JobState::ALL.iter().map(|s| s.as_str())))]
    state: Option<String>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const HEADER: [&str; 7] = [
    "id", "state", "created", "name", "model", "datasets", "tokens",
];
/// `name`, `model` and `datasets`; an id is for copying and stays whole.
const NAMES: Range<usize> = 3..6;

pub(crate) async fn run(jobs: &Jobs) -> Outcome {
    let state = jobs
        .state
        .as_ref()
        .map(|state| format!("&state={state}"))
        .unwrap_or_default();
    let path = format!("/jobs?limit={}{state}", jobs.limit);
    let answer = jobs
        .server
        .client()
        .get::<Page<Job>>(&path, Retry::Interrupted)
        .await?;
    if jobs.json {
        output::line(answer.text);
    } else {
        let rows: Vec<_> = answer.value.items.iter().map(row).collect();
        output::line(plain_table(&HEADER, NAMES, &rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(job: &Job) -> Vec<String> {
    let datasets: Vec<_> = job
        .datasets
        .iter()
        .map(assay_api::DatasetRef::name)
        .collect();
    let scored = grouped(job.progress.scored_tokens);
    vec![
        job.id.to_string(),
        job.state.as_str().to_owned(),
        job.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
        job.name.clone().unwrap_or_default(),
        job.model.clone(),
        datasets.join(", "),
        match job.progress.planned_tokens {
            Some(planned) if planned != job.progress.scored_tokens => {
                format!("{scored} of {}", grouped(planned))
            }
            _ => scored,
        },
    ]
}
