//! `assay jobs`.

use std::process::ExitCode;

use assay_api::{DatasetRef, Job, JobId, JobState, Page};
use chrono::{DateTime, Utc};
use clap::builder::PossibleValuesParser;

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs, with_query};
use crate::failure::{EXIT_CODES, Outcome};
use crate::numbers::{age, grouped};
use crate::output;
use crate::table::{self, Column};

/// List jobs, the newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
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

/// An id is for copying and stays whole.
const COLUMNS: [Column; 10] = [
    Column::text("id", 0),
    Column::text("state", 0),
    Column::text("error", 2),
    Column::number("done", 2),
    Column::text("age", 3),
    Column::name("name", 4),
    Column::name("model", 1),
    Column::name("datasets", 6),
    Column::name("method", 7),
    Column::number("tokens", 5),
];

/// The job of this id.
pub(crate) async fn get(
    client: &Client,
    id: JobId,
    retry: Retry,
) -> Result<Answer<Job>, ClientError> {
    client.get(&format!("/jobs/{id}"), retry).await
}

pub(crate) async fn run(jobs: &Jobs) -> Outcome {
    let pairs = [
        ("limit", Some(jobs.limit.to_string())),
        ("state", jobs.state.clone()),
    ];
    let path = with_query("/jobs", &pairs);
    let answer = jobs
        .server
        .client()?
        .get::<Page<Job>>(&path, Retry::Interrupted)
        .await?;
    if jobs.json {
        output::line(answer.text);
    } else if answer.value.items.is_empty() {
        output::line("no jobs");
    } else {
        let now = Utc::now();
        let rows: Vec<_> = answer.value.items.iter().map(|job| row(job, now)).collect();
        output::line(table::render(&COLUMNS, &rows, output::width()));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(job: &Job, now: DateTime<Utc>) -> Vec<String> {
    let datasets: Vec<_> = job.datasets.iter().map(DatasetRef::name).collect();
    let methods: Vec<_> = job
        .method
        .as_slice()
        .iter()
        .map(crate::method::label)
        .collect();
    let planned = job.progress.planned_tokens;
    vec![
        job.id.to_string(),
        job.state.as_str().to_owned(),
        why(job),
        planned.map_or_else(String::new, |planned| {
            done(job.progress.scored_tokens, planned)
        }),
        age(now - job.created_at),
        job.name.clone().unwrap_or_default(),
        job.model.to_string(),
        datasets.join(", "),
        methods.join(", "),
        planned.map_or_else(String::new, grouped),
    ]
}

/// Why it failed, or why it does not go on.
fn why(job: &Job) -> String {
    match (&job.error, &job.waiting) {
        (Some(error), _) => error.code.to_string(),
        (None, Some(waiting)) => waiting.code.as_str().to_owned(),
        (None, None) => String::new(),
    }
}

/// 100 % is for all tokens and no fewer.
fn done(scored: u64, planned: u64) -> String {
    let percent = u128::from(scored) * 100 / u128::from(planned.max(1));
    format!("{percent} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_all() {
        assert_eq!(done(999, 1000), "99 %");
        assert_eq!(done(u64::MAX, u64::MAX), "100 %");
    }
}
