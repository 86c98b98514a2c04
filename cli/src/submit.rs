//! `assay submit`.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;

use assay_api::{GateRequest, Job, JobId, JobRequest, JobSelector, Webhook};
use reqwest::Method;
use tokio::signal::unix::{SignalKind, signal};

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs};
use crate::failure::{EXIT_CODES, Failure, Outcome, exit};
use crate::job::JobArgs;
use crate::selector::{increase, selector};
use crate::{follow, output, results};

/// The variable that the secret of a webhook is taken from: arguments are seen by every user of the
/// machine.
const SECRET: &str = "ASSAY_WEBHOOK_SECRET";

/// Post a job; with --wait, follow it and print its results.
///
/// Prints the job's id. With --wait a progress bar follows on stderr, and the table of results
/// when the job has succeeded. Each of several models or adapters gets a job, and the table has them
/// all.
/// Ctrl-C ends the waiting and leaves the jobs as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Submit {
    #[command(flatten)]
    job: JobArgs,
    /// Job that this one is held against when it has succeeded, which `assay gate` waits for: an id,
    /// or KEY:VALUE for the newest one with this tag that has succeeded
    #[arg(long, value_name = "JOB|TAG", requires = "max_increase", value_parser = selector)]
    gate_baseline: Option<JobSelector>,
    /// Largest increase of the mean NLL that passes the gate, in nats per token; 0.01 is 1 % of
    /// perplexity
    #[arg(long, value_name = "X", requires = "gate_baseline", value_parser = increase,
        allow_negative_numbers = true)]
    max_increase: Option<f64>,
    /// Where the end of the jobs is told, by a signed POST; docs/webhooks.md says how to verify it
    ///
    /// The secret is taken from --webhook-secret-file, else from ASSAY_WEBHOOK_SECRET; without
    /// either the service makes one, which is shown once, on stderr.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// File with the secret that deliveries are signed with
    #[arg(long, value_name = "FILE", requires = "webhook")]
    webhook_secret_file: Option<PathBuf>,
    /// Post under this key: a second job with it is the first; with several models, `-1`, `-2`, ..
    /// are appended [default: a random one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until the jobs have ended
    #[arg(long)]
    wait: bool,
    /// Print the server's JSON, a line for each job: the job; with --wait the results, or the job
    /// if it did not succeed
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

impl Submit {
    /// Keys so that sending a request again makes no second job.
    fn key(&self, index: usize) -> String {
        match &self.idempotency_key {
            None => uuid::Uuid::new_v4().to_string(),
            Some(key) if !self.job.is_several() => key.clone(),
            Some(key) => format!("{key}-{}", index + 1),
        }
    }

    /// The webhook, if one is given.
    fn webhook(&self) -> Result<Option<Webhook>, Failure> {
        let Some(url) = self.webhook.clone() else {
            return Ok(None);
        };
        let secret = match &self.webhook_secret_file {
            Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
                Failure::Failed(format!("cannot read {}: {error}", file.display()))
            })?),
            None => std::env::var(SECRET).ok(),
        };
        let secret = secret.map(|secret| secret.trim().to_owned());
        let secret = secret.filter(|secret| !secret.is_empty());
        Ok(Some(Webhook {
            url,
            secret: secret.map(Into::into),
        }))
    }

    /// The gate, if one is given; it judges all datasets.
    fn gate(&self) -> Option<GateRequest> {
        Some(GateRequest {
            baseline: self.gate_baseline.clone()?,
            max_increase: self.max_increase?,
            datasets: Vec::new(),
        })
    }
}

pub(crate) async fn run(submit: &Submit) -> Outcome {
    let mut requests = submit.job.requests()?;
    if let Some(gate) = submit.gate() {
        for request in &mut requests {
            request.gate = Some(gate.clone());
        }
    }
    if let Some(webhook) = submit.webhook()? {
        for request in &mut requests {
            request.webhook = Some(webhook.clone());
        }
    }
    let client = submit.server.client()?;
    let mut jobs = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let created = post(&client, request, &submit.key(index)).await?;
        show_secret(&created.value, request);
        if !submit.json {
            output::line(created.value.id);
        } else if !submit.wait {
            output::line(created.text);
        }
        jobs.push(created.value);
    }
    if !submit.wait {
        return Ok(ExitCode::SUCCESS);
    }
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let ended = Cell::new(0);
    // From here on, and not from the first poll on: what is printed below may be answered at once.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Failure::Failed(format!("cannot listen for SIGINT: {error}")))?;
    tokio::select! {
        outcome = wait(&client, jobs, submit.json, &ended) => outcome,
        _ = interrupt.recv() => {
            Err(Failure::Interrupted(interrupted(&ids[ended.get()..])))
        }
    }
}

/// Follows the jobs, one after the other, to their ends, and counts those in `ended`.
async fn wait(client: &Client, jobs: Vec<Job>, json: bool, ended: &Cell<usize>) -> Outcome {
    let several = jobs.len() > 1;
    let mut all_succeeded = true;
    let mut succeeded = Vec::new();
    for job in jobs {
        if several {
            eprintln!("assay: {} ({})", job.model, job.id);
        }
        let answer = follow::follow(client, job).await?;
        ended.set(ended.get() + 1);
        let job = answer.value;
        if let Some(why) = job.why_unsuccessful("the job") {
            all_succeeded = false;
            if json {
                output::line(answer.text);
            }
            eprintln!("assay: {why}");
        } else if json {
            output::line(results::get(client, job.id, Retry::Always).await?.text);
        } else {
            succeeded.push(job.id);
        }
    }
    if !succeeded.is_empty() {
        results::print(client, &succeeded).await?;
    }
    Ok(if all_succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

/// Shows the secret that the service has made, since it never does so again.
fn show_secret(job: &Job, request: &JobRequest) {
    let own = |webhook: &Webhook| webhook.secret.is_none();
    let shown = job.webhook.as_ref().and_then(|shown| shown.secret.as_ref());
    match shown {
        Some(secret) => eprintln!("assay: webhook secret of {}: {}", job.id, secret.expose()),
        None if request.webhook.as_ref().is_some_and(own) => eprintln!(
            "assay: the webhook secret of {} was shown when the job was made, and is not shown \
             again; give one of your own where that may be lost",
            job.id
        ),
        None => (),
    }
}

/// What becomes of the jobs that nobody waits for any more.
fn interrupted(jobs: &[JobId]) -> String {
    let cancel: Vec<_> = jobs
        .iter()
        .map(|id| format!("`assay cancel {id}`"))
        .collect();
    let cancel = cancel.join(", ");
    match jobs {
        [] => "interrupted; the jobs have ended, `assay results` has their numbers".to_owned(),
        [_] => format!("interrupted; the job goes on ({cancel} stops it)"),
        _ => format!("interrupted; the jobs go on ({cancel} stop them)"),
    }
}

/// Posts a job under an idempotency key.
pub(crate) async fn post(
    client: &Client,
    request: &JobRequest,
    key: &str,
) -> Result<Answer<Job>, ClientError> {
    client
        .call(Method::POST, "/jobs", Retry::Interrupted, |http| {
            http.header("Idempotency-Key", key).json(request)
        })
        .await
}
