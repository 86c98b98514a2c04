//! `assay tokens`.

use assay_api::{JobId, JobState, TokenRow};

use crate::client::{Retry, ServerArgs, job_id};
use crate::documents::{dataset, parsed};
use crate::failure::{EXIT_CODES, Outcome};
use crate::numbers::{grouped, measure};
use crate::table::{self, Column, NOTHING};
use crate::{ended, jobs, method, output};

/// The server's largest page.
const PAGE: u64 = 10_000;

/// List the tokens of a document with their negative log-likelihoods.
///
/// The job must have been submitted with --token-output. Offsets are bytes in the document's
/// text; a token without a value is one that does not count.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Tokens {
    /// Id of the job
    #[arg(value_name = "JOB", value_parser = job_id)]
    id: JobId,
    /// Name of the dataset in the results [default: the job's only one]
    #[arg(long, value_name = "NAME")]
    dataset: Option<String>,
    /// Index of the document, as `assay documents` lists it
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    document: u64,
    /// Which of the job's methods, from 0, or the convention of the only one that has it
    #[arg(long, value_name = "INDEX|CONVENTION", default_value = "0", value_parser = method::which)]
    method: method::Which,
    /// How many, from the start of the document [default: 100; with --json all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: [Column; 6] = [
    Column::number("token", 0),
    Column::number("id", 1),
    Column::number("from", 2),
    Column::number("to", 2),
    Column::number("nll", 0),
    Column::number("probability", 3),
];

pub(crate) async fn run(tokens: &Tokens) -> Outcome {
    let client = tokens.server.client()?;
    let job = jobs::get(&client, tokens.id, Retry::Interrupted)
        .await?
        .value;
    let dataset = dataset(&job, tokens.dataset.as_deref())?;
    let method = tokens.method.index(job.method.as_slice())?;
    let pairs = [
        ("dataset", Some(dataset)),
        ("document", Some(tokens.document.to_string())),
        ("method", Some(method.to_string())),
    ];
    let path = format!("/jobs/{}/tokens", tokens.id);
    let limit = tokens.limit.or((!tokens.json).then_some(100));
    let page = client.rows(&path, &pairs, limit, PAGE).await?;
    if tokens.json {
        output::json(&page);
        return ended::outcome(&job);
    }
    let items: Vec<TokenRow> = parsed(&page.items)?;
    if items.is_empty() && job.state != JobState::Succeeded {
        if !job.state.is_final() {
            output::line("no tokens yet: they are listed when the dataset has ended");
        }
        return ended::outcome(&job);
    }
    let rows: Vec<_> = items.iter().map(row).collect();
    output::line(table::render(&COLUMNS, &rows, output::width()));
    if page.next.is_some() {
        output::line("there are more: --limit N takes as many, --json all");
    }
    ended::outcome(&job)
}

fn row(token: &TokenRow) -> Vec<String> {
    let nothing = || NOTHING.to_owned();
    vec![
        grouped(token.index),
        token.id.to_string(),
        grouped(token.start),
        grouped(token.end),
        token.nll.map_or_else(nothing, measure),
        token.nll.map_or_else(nothing, |nll| measure((-nll).exp())),
    ]
}
