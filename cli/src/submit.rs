//! `assay submit`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_api::{DatasetRef, DtypeRequest, Job, JobId, JobRequest, MethodRequest};
use clap::ValueEnum;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs};
use crate::dataset::{DatasetArg, DatasetOptions, dataset};
use crate::failure::{EXIT_CODES, Failure, Outcome, exit};
use crate::{ended, follow, method, output, results};

/// Post a job; with --wait, follow it and print its results.
///
/// Prints the job's id. With --wait a progress bar follows on stderr, and the table of results
/// when the job has succeeded. With several models each gets a job, and the table has them all.
/// Ctrl-C ends the waiting and leaves the jobs as they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
// Each is a flag of its own.
#[expect(clippy::struct_excessive_bools)]
pub(crate) struct Submit {
    /// Checkpoint: a path below the server's model root; give it again for a job each
    #[arg(long = "model", value_name = "PATH", required_unless_present = "file")]
    models: Vec<String>,
    /// Dataset: a path, a directory or a glob below the server's data root; may be given again
    ///
    /// PATH, NAME=PATH, upload:NAME for an uploaded one, or the JSON object of the API, such as
    /// '{"path": "lang=en/a.jsonl", "field": "body"}'.
    #[arg(long = "dataset", value_name = "DATASET", required_unless_present = "file", value_parser = dataset)]
    datasets: Vec<DatasetArg>,
    /// Method; give it again to score each dataset by each
    ///
    /// CONVENTION[,window=N][,stride=N][,join=TEXT][,bos=auto|always|never][,tail=drop|score], with
    /// the convention rolling, blocks, strided or llamacpp; \n in TEXT is a line feed, \, a comma.
    /// Or the JSON object of the API. [default: rolling]
    #[arg(long = "method", value_name = "METHOD", value_parser = method::method)]
    methods: Vec<MethodRequest>,
    /// Tokens in a window, of each method that names no other [default: 2048, under llamacpp 512,
    /// or the model's positions, if fewer]
    #[arg(long, value_name = "TOKENS")]
    window: Option<u32>,
    /// Dtype of the computation [default: auto]
    #[arg(long, value_enum)]
    dtype: Option<DtypeArg>,
    /// Keep the NLL of every counted token, for `assay tokens` and `assay archive`
    #[arg(long)]
    token_output: bool,
    /// Score anew what an earlier job has scored in the same way
    #[arg(long)]
    no_reuse: bool,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// A label; may be given again
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// Body of the request as JSON, `-` for stdin; the options here override its fields
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
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
    #[command(flatten)]
    options: DatasetOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DtypeArg {
    /// As the checkpoint: bfloat16 for bfloat16, float32 for all others
    Auto,
    Float32,
    Bfloat16,
}

impl From<DtypeArg> for DtypeRequest {
    fn from(dtype: DtypeArg) -> Self {
        match dtype {
            DtypeArg::Auto => Self::Auto,
            DtypeArg::Float32 => Self::Float32,
            DtypeArg::Bfloat16 => Self::Bfloat16,
        }
    }
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a tag is KEY=VALUE, such as branch=main".to_owned()),
    }
}

impl Submit {
    /// A request for each model.
    fn requests(&self) -> Result<Vec<JobRequest>, Failure> {
        let mut body = match &self.file {
            Some(file) => read(file)?,
            None => Map::new(),
        };
        self.override_fields(&mut body);
        let models = self.models.iter().map(|model| Some(model.clone()));
        let models = models.chain(self.models.is_empty().then_some(None));
        models
            .map(|model| {
                let mut body = body.clone();
                body.extend(model.map(|model| ("model".to_owned(), Value::from(model))));
                let mut request: JobRequest = serde_path_to_error::deserialize(Value::Object(body))
                    .map_err(|error| Failure::Usage(wrong_body(&error)))?;
                self.override_datasets(&mut request)?;
                self.override_windows(&mut request);
                Ok(request)
            })
            .collect()
    }

    fn override_fields(&self, body: &mut Map<String, Value>) {
        let datasets = self.datasets.iter().map(|given| json!(given.dataset));
        let given = [
            ("name", self.name.as_ref().map(|name| json!(name))),
            (
                "datasets",
                (!self.datasets.is_empty()).then(|| datasets.collect()),
            ),
            (
                "method",
                match self.methods.as_slice() {
                    [] => None,
                    [one] => Some(json!(one)),
                    many => Some(json!(many)),
                },
            ),
            (
                "dtype",
                self.dtype.map(|dtype| json!(DtypeRequest::from(dtype))),
            ),
            ("token_output", self.token_output.then_some(json!(true))),
            ("reuse", self.no_reuse.then_some(json!(false))),
        ];
        for (field, value) in given {
            if let Some(value) = value {
                body.insert(field.to_owned(), value);
            }
        }
        if !self.tags.is_empty() {
            let tags = body.entry("tags").or_insert_with(|| json!({}));
            // Tags that are no object are refused with the rest of the body.
            if let Value::Object(tags) = tags {
                tags.extend(
                    self.tags
                        .iter()
                        .map(|(key, value)| (key.clone(), json!(value))),
                );
            }
        }
    }

    /// Options apply to plain paths: those of the command line, and of the file those of which
    /// it says nothing but the name.
    fn override_datasets(&self, request: &mut JobRequest) -> Result<(), Failure> {
        if self.options.is_empty() {
            return Ok(());
        }
        let mut any = false;
        for (index, dataset) in request.datasets.iter_mut().enumerate() {
            let plain = if let Some(given) = self.datasets.get(index) {
                given.plain
            } else {
                let bare = DatasetRef {
                    name: dataset.name.clone(),
                    path: dataset.path.clone(),
                    upload: dataset.upload.clone(),
                    ..DatasetRef::default()
                };
                *dataset == bare
            };
            if plain {
                self.options.apply(dataset);
                any = true;
            }
        }
        if any {
            return Ok(());
        }
        Err(Failure::Usage(
            "there is no dataset to which the options of plain paths apply; put them into its \
             JSON object, or give it as a path"
                .to_owned(),
        ))
    }

    /// `--window` is for methods of the command line that name none, and overrides those of the
    /// file.
    fn override_windows(&self, request: &mut JobRequest) {
        let Some(window) = self.window else { return };
        let overrides = self.methods.is_empty();
        request.method = request.method.map(|method| MethodRequest {
            window: Some(window)
                .filter(|_| overrides || method.window.is_none())
                .or(method.window),
            ..method.clone()
        });
    }

    /// Keys so that sending a request again makes no second job.
    fn key(&self, index: usize) -> String {
        match &self.idempotency_key {
            None => uuid::Uuid::new_v4().to_string(),
            Some(key) if self.models.len() < 2 => key.clone(),
            Some(key) => format!("{key}-{}", index + 1),
        }
    }
}

fn read(file: &Path) -> Result<Map<String, Value>, Failure> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text =
        text.map_err(|error| Failure::Failed(format!("cannot read {}: {error}", file.display())))?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::Usage(format!(
            "{} is not the JSON object of a job: {error}",
            file.display()
        ))
    })
}

fn wrong_body(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    if path == "." {
        return format!("the job is not valid: {}", error.inner());
    }
    format!("the job is not valid: {path}: {}", error.inner())
}

pub(crate) async fn run(submit: &Submit) -> Outcome {
    let requests = submit.requests()?;
    let client = submit.server.client();
    let mut jobs = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let created = post(&client, request, &submit.key(index)).await?;
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
        if let Some(why) = ended::why(&job, "the job") {
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

async fn post(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_needs_a_key() {
        assert_eq!(
            tag("branch=a=b"),
            Ok(("branch".to_owned(), "a=b".to_owned()))
        );
        assert!(tag("branch").is_err());
        assert!(tag("=x").is_err());
    }
}
