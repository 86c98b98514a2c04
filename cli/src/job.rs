//! The job that options make: what `submit` posts and `plan` asks about.

use std::path::{Path, PathBuf};

use assay_api::{BaselineRequest, DatasetRef, DtypeRequest, JobRequest, MethodRequest, Numerics};
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::dataset::{DatasetArg, DatasetOptions, dataset};
use crate::failure::Failure;
use crate::method;

/// What a job is made of, one for each model.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    /// Checkpoint: a path below the server's model root; give it again for a job each
    #[arg(long = "model", value_name = "PATH", required_unless_present = "file")]
    models: Vec<String>,
    /// LoRA adapter to add to the checkpoint: a path below the server's model root; give it again
    /// for a job each
    #[arg(long = "adapter", value_name = "PATH")]
    adapters: Vec<String>,
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
    /// Whether a device that is slow in this dtype may compute in float32 [default: uniform]
    #[arg(long, value_enum)]
    numerics: Option<NumericsArg>,
    /// Keep the NLL of every counted token, for `assay tokens` and `assay archive`
    #[arg(long)]
    token_output: bool,
    /// Score anew what an earlier job has scored in the same way
    #[arg(long)]
    no_reuse: bool,
    /// Before jobs of a lower priority, -100 to 100 [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Fail the job if no worker takes it up within this time
    #[arg(long, value_name = "SECONDS")]
    queue_seconds: Option<u32>,
    /// Fail the job if it runs for longer
    #[arg(long, value_name = "SECONDS")]
    run_seconds: Option<u32>,
    /// Share of the shards that another worker computes again, 0 to 1 [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    audit: Option<f64>,
    /// Whether one device computes a sample alone first, for the speed-up [default: auto]
    #[arg(long, value_enum)]
    baseline: Option<BaselineArg>,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// A label; may be given again
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
    /// Body of the request as JSON, `-` for stdin; the options here override its fields
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    options: DatasetOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DtypeArg {
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NumericsArg {
    /// All devices compute in the dtype of the job
    Uniform,
    /// Where float32 is faster it is used; the result says where, and what that changed
    Adaptive,
}

impl From<NumericsArg> for Numerics {
    fn from(numerics: NumericsArg) -> Self {
        match numerics {
            NumericsArg::Uniform => Self::Uniform,
            NumericsArg::Adaptive => Self::Adaptive,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BaselineArg {
    /// If the job takes a minute or more on several devices
    Auto,
    Measure,
    Skip,
}

impl From<BaselineArg> for BaselineRequest {
    fn from(baseline: BaselineArg) -> Self {
        match baseline {
            BaselineArg::Auto => Self::Auto,
            BaselineArg::Measure => Self::Measure,
            BaselineArg::Skip => Self::Skip,
        }
    }
}

/// JSON has no numbers for infinities and NaN; the server says what is wrong with the rest.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| share.is_finite());
    share.ok_or_else(|| "a share is a number from 0 to 1".to_owned())
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a tag is KEY=VALUE, such as branch=main".to_owned()),
    }
}

/// Each of these; none once, if there are none.
fn each(given: &[String]) -> impl Iterator<Item = Option<&str>> {
    let none = given.is_empty().then_some(None);
    given.iter().map(|one| Some(one.as_str())).chain(none)
}

impl JobArgs {
    /// Whether there is a job for each of several models or adapters.
    pub(crate) fn is_several(&self) -> bool {
        self.models.len() > 1 || self.adapters.len() > 1
    }

    /// A request for each model with each adapter.
    ///
    /// # Errors
    /// The file cannot be read or is no JSON object, the body is not that of a job, or options
    /// apply to nothing.
    pub(crate) fn requests(&self) -> Result<Vec<JobRequest>, Failure> {
        let mut body = self.body()?;
        self.override_fields(&mut body);
        let models = each(&self.models);
        let pairs = models.flat_map(|model| each(&self.adapters).map(move |one| (model, one)));
        pairs
            .map(|(model, adapter)| {
                let mut request = self.request(body.clone(), model)?;
                if adapter.is_some() {
                    request.model.adapter = adapter.map(str::to_owned);
                }
                Ok(request)
            })
            .collect()
    }

    fn override_fields(&self, body: &mut Map<String, Value>) {
        let given = [
            ("name", self.name.as_ref().map(|name| json!(name))),
            (
                "dtype",
                self.dtype.map(|dtype| json!(DtypeRequest::from(dtype))),
            ),
            (
                "numerics",
                self.numerics
                    .map(|numerics| json!(Numerics::from(numerics))),
            ),
            ("token_output", self.token_output.then_some(json!(true))),
            ("reuse", self.no_reuse.then_some(json!(false))),
            ("priority", self.priority.map(|priority| json!(priority))),
            ("audit", self.audit.map(|audit| json!(audit))),
            (
                "baseline",
                self.baseline
                    .map(|baseline| json!(BaselineRequest::from(baseline))),
            ),
        ];
        for (field, value) in given {
            if let Some(value) = value {
                body.insert(field.to_owned(), value);
            }
        }
        for (field, seconds) in [
            ("queue_seconds", self.queue_seconds),
            ("run_seconds", self.run_seconds),
        ] {
            let Some(seconds) = seconds else { continue };
            let deadlines = body.entry("deadlines").or_insert_with(|| json!({}));
            // As with tags.
            if let Value::Object(deadlines) = deadlines {
                deadlines.insert(field.to_owned(), json!(seconds));
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

    /// The body of the file, if there is one, with the datasets and methods that are given.
    ///
    /// # Errors
    /// The file cannot be read, or is no JSON object.
    fn body(&self) -> Result<Map<String, Value>, Failure> {
        let mut body = match &self.file {
            Some(file) => read(file)?,
            None => Map::new(),
        };
        if !self.datasets.is_empty() {
            let datasets = self.datasets.iter().map(|given| json!(given.dataset));
            body.insert("datasets".to_owned(), datasets.collect());
        }
        let method = match self.methods.as_slice() {
            [] => None,
            [one] => Some(json!(one)),
            many => Some(json!(many)),
        };
        body.extend(method.map(|method| ("method".to_owned(), method)));
        Ok(body)
    }

    /// The request of a body, with the model, if one is given, and the options that apply.
    ///
    /// # Errors
    /// The body is not that of a job, or options apply to nothing.
    fn request(
        &self,
        mut body: Map<String, Value>,
        model: Option<&str>,
    ) -> Result<JobRequest, Failure> {
        body.extend(model.map(|model| ("model".to_owned(), Value::from(model))));
        let mut request: JobRequest = serde_path_to_error::deserialize(Value::Object(body))
            .map_err(|error| Failure::Usage(wrong_body(&error)))?;
        self.override_datasets(&mut request)?;
        self.override_windows(&mut request);
        Ok(request)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_number() {
        assert_eq!(share("0.05"), Ok(0.05));
        for wrong in ["nan", "inf", "5%", ""] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

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
