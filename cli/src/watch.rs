//! `assay watch`.

use std::time::Duration;

use assay_api::{JobEvent, JobId};
use eventsource_stream::{Event, Eventsource};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use crate::client::{Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::numbers::grouped;
use crate::{ended, jobs, output};

/// The server says something at least every 15 seconds.
const SILENCE: Duration = Duration::from_secs(45);
/// Between a stream that broke off and the next.
const PAUSE: Duration = Duration::from_millis(250);

/// Print what happens to a job until it ends.
///
/// One line for each change of its state, each dataset that is done, and the progress at most once
/// a second. A server that is restarted meanwhile is waited for, and nothing is missed. With --json
/// each line has the event's id; `--after` it a later call goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Watch {
    /// Id of the job
    #[arg(value_parser = job_id)]
    id: JobId,
    /// Only what comes after the event of this id
    #[arg(long, value_name = "EVENT")]
    after: Option<String>,
    /// Print each event as a line of JSON: its `id`, `event` and `data`
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(watch: &Watch) -> Outcome {
    let client = watch.server.client()?;
    let path = format!("/jobs/{}/events", watch.id);
    let mut last = watch.after.clone();
    let mut retry = Retry::Interrupted;
    while let Some(response) = client.follow(&path, last.as_deref(), retry).await? {
        retry = Retry::Always;
        let mut events = std::pin::pin!(chunks(response).eventsource());
        // A stream that breaks off is taken up again behind the last whole event.
        while let Some(Ok(event)) = events.next().await {
            let line = if watch.json {
                in_json(&event)?
            } else {
                for_people(&event)?
            };
            output::line(line);
            last = Some(event.id);
        }
        sleep(PAUSE).await;
    }
    let job = jobs::get(&client, watch.id, Retry::Always).await?.value;
    match ended::outcome(&job) {
        Err(failure) if watch.json => Ok(failure.exit_code()),
        outcome => outcome,
    }
}

/// The bytes of an answer, until it ends or falls silent.
fn chunks(response: Response) -> impl Stream<Item = reqwest::Result<Vec<u8>>> {
    stream::unfold(response, |mut response| async move {
        let chunk = timeout(SILENCE, response.chunk()).await.ok()?;
        let chunk = chunk.transpose()?.map(|bytes| bytes.to_vec());
        Some((chunk, response))
    })
}

/// An event as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    event: &'a str,
    data: &'a RawValue,
}

fn in_json(event: &Event) -> Result<String, Failure> {
    let data = serde_json::from_str(&event.data).map_err(|error| unreadable(event, &error))?;
    let line = Line {
        id: &event.id,
        event: &event.event,
        data,
    };
    Ok(serde_json::to_string(&line).expect("a line is plain data"))
}

fn for_people(event: &Event) -> Result<String, Failure> {
    let parsed = match event.event.as_str() {
        "state" => serde_json::from_str(&event.data).map(JobEvent::State),
        "dataset" => serde_json::from_str(&event.data).map(JobEvent::Dataset),
        _ => serde_json::from_str(&event.data).map(JobEvent::Progress),
    };
    Ok(match parsed.map_err(|error| unreadable(event, &error))? {
        JobEvent::State(change) => {
            let at = change.at.format("%H:%M:%S");
            format!("{at} {}", change.state.as_str())
        }
        JobEvent::Dataset(done) => {
            let at = done.at.format("%H:%M:%S");
            let row = &done.result;
            let perplexity = row
                .perplexity
                .map(|perplexity| format!(", perplexity {perplexity:.4}"))
                .unwrap_or_default();
            format!(
                "{at} {} ({}): {} tokens{perplexity}",
                row.name,
                row.method.convention.as_str(),
                grouped(row.scored_tokens)
            )
        }
        JobEvent::Progress(progress) => {
            let planned = progress.planned_tokens.unwrap_or(progress.scored_tokens);
            format!(
                "         {} of {} tokens",
                grouped(progress.scored_tokens),
                grouped(planned)
            )
        }
    })
}

fn unreadable(event: &Event, cause: &serde_json::Error) -> Failure {
    Failure::Failed(format!(
        "cannot read the event {} of the server: {cause}; are server and client of one version?",
        event.id
    ))
}
