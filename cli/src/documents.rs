//! `assay documents`.

use assay_api::{DatasetRef, DocumentRow, Job, JobId, Page};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::client::{ClientError, Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::numbers::{grouped, measure};
use crate::table::{self, Column, NOTHING};
use crate::{ended, jobs, method, output};

/// The server's largest page.
const PAGE: u64 = 10_000;

/// List the documents of a dataset with their numbers.
///
/// Which ones got worse than in another job says `assay compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Documents {
    /// Id of the job
    #[arg(value_name = "JOB", value_parser = job_id)]
    id: JobId,
    /// Name of the dataset in the results [default: the job's only one]
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Which of the job's methods, from 0, or the convention of the only one that has it
    #[arg(long, value_name = "INDEX|CONVENTION", default_value = "0", value_parser = method::which)]
    method: method::Which,
    /// Only the N documents of the highest mean NLL
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    worst: Option<u64>,
    /// How many, from the start of the dataset [default: 100; with --json all]
    #[arg(long, value_name = "N", conflicts_with = "worst",
        value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: [Column; 7] = [
    Column::number("document", 0),
    Column::name("group", 1),
    Column::number("tokens", 2),
    Column::number("scored tokens", 3),
    Column::number("bytes", 4),
    Column::number("mean nll", 0),
    Column::number("perplexity", 0),
];

pub(crate) async fn run(documents: &Documents) -> Outcome {
    let client = documents.server.client()?;
    let job = jobs::get(&client, documents.id, Retry::Interrupted)
        .await?
        .value;
    let dataset = dataset(&job, documents.dataset.as_deref())?;
    let method = documents.method.index(job.method.as_slice())?;
    let mut pairs = vec![
        ("dataset", Some(dataset)),
        ("method", Some(method.to_string())),
    ];
    let limit = documents.worst.or(documents.limit);
    let limit = limit.or((!documents.json).then_some(100));
    if documents.worst.is_some() {
        pairs.push(("order", Some("worst".to_owned())));
    }
    let path = format!("/jobs/{}/documents", documents.id);
    let page = client.rows(&path, &pairs, limit, PAGE).await?;
    if documents.json {
        output::json(&page);
    } else {
        show(&job, &page, documents.worst.is_some())?;
    }
    ended::outcome(&job)
}

/// The dataset named, or the only one of the job.
pub(crate) fn dataset(job: &Job, given: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = given {
        return Ok(name.to_owned());
    }
    match job.datasets.as_slice() {
        [one] => Ok(one.name().to_owned()),
        several => {
            let names: Vec<_> = several.iter().map(DatasetRef::name).collect();
            Err(Failure::Usage(format!(
                "the job has several datasets; name one with --dataset: {}",
                names.join(", ")
            )))
        }
    }
}

/// Rows of the server as values.
pub(crate) fn parsed<T: DeserializeOwned>(rows: &[Box<RawValue>]) -> Result<Vec<T>, ClientError> {
    rows.iter()
        .map(|row| {
            serde_json::from_str(row.get()).map_err(|cause| ClientError::Unreadable {
                url: "the server".to_owned(),
                cause,
            })
        })
        .collect()
}

fn show(job: &Job, page: &Page<Box<RawValue>>, worst: bool) -> Result<(), ClientError> {
    let items: Vec<DocumentRow> = parsed(&page.items)?;
    if items.is_empty() {
        if job.why_unsuccessful("").is_none() {
            output::line("no documents yet: they are listed when the dataset has ended");
        }
        return Ok(());
    }
    let rows: Vec<_> = items.iter().map(row).collect();
    output::line(table::render(&COLUMNS, &rows, output::width()));
    if page.next.is_some() && !worst {
        output::line("there are more: --limit N takes as many, --json all");
    }
    Ok(())
}

fn row(document: &DocumentRow) -> Vec<String> {
    let mean = mean(document);
    vec![
        grouped(document.index),
        document.group.clone().unwrap_or_default(),
        grouped(document.tokens),
        grouped(document.scored_tokens),
        grouped(document.bytes),
        mean.map_or_else(|| NOTHING.to_owned(), measure),
        mean.map_or_else(
            || NOTHING.to_owned(),
            |mean| {
                let perplexity = mean.exp();
                if perplexity.is_finite() {
                    measure(perplexity)
                } else {
                    "overflow".to_owned()
                }
            },
        ),
    ]
}

/// Mean NLL of the scored tokens.
fn mean(document: &DocumentRow) -> Option<f64> {
    (document.scored_tokens > 0).then(|| document.nll / document.scored_tokens as f64)
}
