//! `assay profile`.

mod place;
mod report;
mod spans;

use std::path::PathBuf;
use std::process::ExitCode;

use assay_api::{
    BaselineRequest, DatasetRef, Dtype, DtypeRequest, Job, JobRequest, JobResult, Method,
    MethodRequest, ModelRef, OneOrMany,
};
use assay_checkpoint::Checkpoint;
use serde::Serialize;

use self::place::Places;
use self::spans::Run;
use crate::client::{Client, Retry};
use crate::dataset::DatasetOptions;
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::job::DtypeArg;
use crate::up::{Host, Hub, Settings, with_service};
use crate::{follow, method, output, results, submit};

/// Say where the time of a job on this machine goes, stage by stage.
///
/// Starts a service of its own with one worker, as `assay up` does, and scores the dataset twice:
/// the first run tokenizes and loads the model, the second finds both done. The worker measures
/// each stage in both. Also measured is the floor: the matrix products of the same micro-batches
/// and nothing else, which scoring cannot be faster than. What was started is ended and removed.
///
/// Stages are shown with their seconds, summed over the devices, and their share of the devices'
/// time from the first claim to the last commit. What is computed together counts where most of it
/// is: on processors the activation among the products, and the loss in the head. Run it on an idle
/// machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Profile {
    /// Checkpoint: a directory as transformers writes it, or a .gguf file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// LoRA adapter to add to it: a directory as PEFT writes it
    #[arg(long, value_name = "PATH")]
    adapter: Option<PathBuf>,
    /// Dataset: a file or a directory
    #[arg(long, value_name = "FILE")]
    dataset: PathBuf,
    /// Method: CONVENTION[,window=N][,stride=N][,..], as `assay submit` takes it
    #[arg(
        long,
        visible_alias = "convention",
        value_name = "METHOD",
        default_value = "rolling",
        value_parser = method::method
    )]
    method: MethodRequest,
    /// Tokens in a window, if the method names no other [default: 2048, under llamacpp 512, or the
    /// model's positions, if fewer]
    #[arg(long, value_name = "TOKENS")]
    window: Option<u32>,
    /// Dtype of the computation
    #[arg(long, value_enum, default_value = "auto")]
    dtype: DtypeArg,
    /// Devices, such as `cpu:0`, `cpu:0-1` or `cuda:0,cuda:1` [default: all GPUs, or else all cores
    /// as one]
    #[arg(long, value_name = "SPEC", env = "ASSAY_DEVICES")]
    devices: Option<String>,
    /// Print JSON: what was scored, and of both runs the stages and the floor
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: DatasetOptions,
}

/// What is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Profiled {
    model: String,
    dataset: String,
    method: OneOrMany<Method>,
    dtype: Dtype,
    device_kinds: Vec<String>,
    /// Tokens that each run had to score.
    planned_tokens: u64,
    /// Tokenizes and loads.
    first: Run,
    /// Finds the tokens in the cache and the model on the devices.
    second: Run,
}

pub(crate) async fn run(profile: &Profile) -> Outcome {
    // Before anything is started.
    Checkpoint::open_with(&profile.model, profile.adapter.as_deref())
        .map_err(|error| Failure::Failed(error.to_string()))?;
    let models = Places::of([Some(&profile.model), profile.adapter.as_ref()])?;
    let data = Places::of([Some(&profile.dataset), None])?;
    let request = profile.request(&models, &data);

    let folder = tempfile::tempdir()
        .map_err(|error| Failure::Failed(format!("cannot make a temporary folder: {error}")))?;
    let host = Host {
        model_root: models.root,
        data_root: data.root,
        state_dir: folder.path().to_owned(),
        devices: profile.devices.clone(),
        database_url: None,
    };
    let file = folder.path().join("profile.jsonl");
    let settings = Settings {
        command: "assay profile",
        listen: "127.0.0.1:0",
        workers: 1,
        host: &host,
        hub: &Hub::default(),
        profile: Some(&file),
        is_quiet: true,
    };
    let scored = with_service(&settings, async |address| twice(&address, &request).await)
        .await
        .map_err(|error| Failure::Failed(format!("{error:#}")))?;
    let (jobs, result) = scored.ok_or_else(|| {
        Failure::Interrupted("interrupted; what was started is ended and removed".to_owned())
    })??;
    // The worker has ended, so that the last span is there too.
    let spans = spans::read(&file)?;
    let [first, second] = jobs;
    let profiled = Profiled {
        model: profile.model.display().to_string(),
        dataset: profile.dataset.display().to_string(),
        method: result.method,
        dtype: result.dtype,
        device_kinds: result.device_kinds,
        planned_tokens: second.progress.planned_tokens.unwrap_or_default(),
        first: Run::of(&spans, first.id)?,
        second: Run::of(&spans, second.id)?,
    };
    if profile.json {
        output::json(&profiled);
    } else {
        output::line(report::render(&profiled, output::width()));
    }
    Ok(ExitCode::SUCCESS)
}

impl Profile {
    fn request(&self, models: &Places, data: &Places) -> JobRequest {
        let mut dataset = DatasetRef::at(&data.path);
        self.options.apply(&mut dataset);
        JobRequest {
            name: None,
            model: ModelRef {
                path: models.path.clone(),
                adapter: models.second.clone(),
            },
            datasets: vec![dataset],
            method: OneOrMany::One(MethodRequest {
                window: self.method.window.or(self.window),
                ..self.method.clone()
            }),
            dtype: DtypeRequest::from(self.dtype),
            numerics: assay_api::Numerics::Uniform,
            tags: std::collections::BTreeMap::new(),
            token_output: false,
            // The second run would have nothing to do.
            reuse: false,
            priority: 0,
            audit: 0.0,
            baseline: BaselineRequest::Skip,
            gate: None,
            webhook: None,
            deadlines: None,
        }
    }
}

/// Scores the same job twice.
async fn twice(address: &str, request: &JobRequest) -> Result<([Job; 2], JobResult), Failure> {
    let client = Client::of(&format!("http://{address}"))?;
    let first = score(&client, request).await?;
    let second = score(&client, request).await?;
    let result = results::get(&client, second.id, Retry::Always).await?.value;
    Ok(([first, second], result))
}

async fn score(client: &Client, request: &JobRequest) -> Result<Job, Failure> {
    let key = uuid::Uuid::new_v4().to_string();
    let job = submit::post(client, request, &key).await?.value;
    let job = follow::follow(client, job).await?.value;
    match job.why_unsuccessful("the job") {
        Some(why) => Err(Failure::Failed(why)),
        None => Ok(job),
    }
}
