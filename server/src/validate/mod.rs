//! What a job must be before it is stored. Reads headers of files, so it blocks.

mod datasets;
mod labels;
mod methods;
mod model;
mod plans;
mod running;
mod webhook;

use std::collections::HashMap;

use assay_api::{
    DatasetFormat, DatasetInspectionRequest, DatasetRef, Dtype, DtypeRequest, ErrorCode,
    JobRequest, Method, ModelRef, OneOrMany, Upload,
};
use assay_checkpoint::{ChatTemplate, TextTokenizer, Tokenizers};
use assay_data::{PathError, Root, Uploads};

pub(crate) use self::datasets::MAX_DATASETS;
use self::model::MODEL;
pub(crate) use self::model::{Model, Opened, open};
pub(crate) use self::plans::{PlannedJob, resolve_plan};
use crate::error::ApiError;
use crate::faults::Faults;
use crate::remote::Remote;
use crate::webhooks::Receivers;

/// Datasets times methods of a job.
const MAX_ROWS: usize = 400;

/// Where what a request names is looked for.
pub(crate) struct Grounds {
    /// Where checkpoints are.
    pub(crate) models: Root,
    /// Where datasets are.
    pub(crate) data: Root,
    /// Where uploads are.
    pub(crate) uploads: Uploads,
    /// The uploads that the request names, as far as there are such.
    pub(crate) uploaded: HashMap<String, Upload>,
    /// Tokenizers that are built already.
    pub(crate) tokenizers: Tokenizers,
    /// What references of the request to a hub were found to be.
    pub(crate) remote: Remote,
    /// Where webhooks may be.
    pub(crate) receivers: Receivers,
}

/// What a request leaves open, filled in.
#[derive(Debug, PartialEq)]
pub(crate) struct Resolved {
    /// With names and digests of uploads.
    pub(crate) datasets: Vec<DatasetRef>,
    pub(crate) methods: OneOrMany<Method>,
    pub(crate) dtype: Dtype,
}

/// What methods are held against.
struct Limits {
    /// The longest window.
    positions: u32,
    /// Whether the tokenizer names a BOS.
    has_bos: bool,
}

/// Checks everything about `request` that can be checked without reading weights or text.
///
/// # Errors
/// One problem that names every field at fault. `CheckpointError` and paths keep their codes.
pub(crate) fn resolve(grounds: &Grounds, request: &JobRequest) -> Result<Resolved, ApiError> {
    let mut faults = Faults::default();
    let found = check(grounds, request, &mut faults);
    faults.into_result()?;
    let (resolved, _) = found.expect("a checkpoint that does not open is a fault");
    Ok(resolved)
}

/// What [`resolve`] answers, and the checkpoint; to be used only without a fault, and none if the
/// checkpoint does not open.
fn check(
    grounds: &Grounds,
    request: &JobRequest,
    faults: &mut Faults,
) -> Option<(Resolved, Opened)> {
    labels::check(request, faults);
    running::check(request, faults);
    if let Some(webhook) = &request.webhook {
        webhook::check(webhook, &grounds.receivers, faults);
    }
    let resolved = datasets::resolve(&request.datasets, grounds, faults);
    let opened = open(grounds, &request.model, MODEL, faults);
    let limits = opened.as_ref().map(|opened| Limits {
        positions: u32::try_from(opened.model.architecture().max_positions).unwrap_or(u32::MAX),
        has_bos: opened.tokenizer.bos().is_some(),
    });
    let methods = methods::resolve(&request.method, limits.as_ref(), faults);
    together(request, opened.as_ref(), faults);

    let opened = opened?;
    let dtype = match request.dtype {
        DtypeRequest::Auto => opened.model.default_dtype(),
        DtypeRequest::Float32 => Some(Dtype::Float32),
        DtypeRequest::Bfloat16 => Some(Dtype::Bfloat16),
    };
    faults.require(
        dtype.is_some(),
        "dtype",
        "cannot be `auto`, as config.json of the model names no dtype and the weights are not \
         fetched yet; set `float32` or `bfloat16`",
    );
    let resolved = Resolved {
        datasets: resolved,
        methods,
        dtype: dtype?,
    };
    Some((resolved, opened))
}

/// What an inspection of a dataset works with.
pub(crate) struct Inspected {
    /// With its name and the digest of its upload.
    pub(crate) dataset: DatasetRef,
    pub(crate) tokenizer: Option<TextTokenizer>,
    pub(crate) chat: Option<ChatTemplate>,
}

/// Checks a dataset that is to be inspected as [`resolve`] checks those of a job.
///
/// # Errors
/// One problem that names every field at fault.
pub(crate) fn resolve_inspection(
    grounds: &Grounds,
    request: &DatasetInspectionRequest,
) -> Result<Inspected, ApiError> {
    let mut faults = Faults::default();
    let entry = &request.dataset;
    let dataset = datasets::one(entry, "dataset", grounds, &mut faults);
    let is_chat = entry.format() == DatasetFormat::Chat;
    let mut chat = None;
    faults.require(
        !is_chat || request.model.is_some(),
        "model",
        "is left out, but the text of `chat` is made by a checkpoint's chat template; name one",
    );
    let opened = request
        .model
        .as_ref()
        .and_then(|path| open(grounds, &ModelRef::of(path), MODEL, &mut faults));
    if is_chat && let Some(opened) = &opened {
        chat = chat_template(&opened.model, "dataset", &mut faults);
    }
    faults.into_result()?;
    Ok(Inspected {
        dataset,
        tokenizer: opened.map(|opened| opened.tokenizer),
        chat,
    })
}

/// What datasets, methods and the checkpoint ask of each other.
fn together(request: &JobRequest, opened: Option<&Opened>, faults: &mut Faults) {
    let (datasets, methods) = (&request.datasets, request.method.as_slice());
    let rows = datasets.len().saturating_mul(methods.len());
    faults.require(
        rows <= MAX_ROWS,
        "method",
        format!(
            "makes {rows} rows of {} datasets and {} methods; a job takes {MAX_ROWS}, post \
             several jobs",
            datasets.len(),
            methods.len()
        ),
    );
    let first_of = |formats: &[DatasetFormat]| {
        datasets
            .iter()
            .enumerate()
            .find(|(_, entry)| formats.contains(&entry.format()))
    };
    if let Some((dataset, entry)) = first_of(&[DatasetFormat::Chat, DatasetFormat::Pairs]) {
        for (index, method) in methods.iter().enumerate() {
            let convention = method.convention;
            if convention.is_joined() {
                faults.add(
                    ErrorCode::MethodInvalid,
                    format!("{}.convention", methods::name(&request.method, index)),
                    format!(
                        "`{}` joins the documents, but datasets[{dataset}] has the format `{}`, \
                         whose documents are scored one by one; use `rolling`, or post them apart",
                        convention.as_str(),
                        datasets::name_of(entry.format()),
                    ),
                );
            }
        }
    }
    let Some(opened) = opened else { return };
    if let Some((dataset, _)) = first_of(&[DatasetFormat::Chat]) {
        let dataset = format!("datasets[{dataset}]");
        chat_template(&opened.model, &dataset, faults);
    }
    // A chat's text brings its own BOS, and joined text takes one only if it is to.
    let needs_prefix = methods.iter().any(|m| !m.convention.is_joined())
        && datasets.iter().any(|d| d.format() != DatasetFormat::Chat);
    if needs_prefix && let Err(error) = opened.tokenizer.prefix() {
        faults.add(error.code(), "model", error.to_string());
    }
}

/// The chat template, which `dataset` needs.
fn chat_template(model: &Model, dataset: &str, faults: &mut Faults) -> Option<ChatTemplate> {
    match model.chat_template() {
        Ok(Some(template)) => Some(template),
        Ok(None) => {
            faults.add(
                ErrorCode::ChatTemplateUnusable,
                "model",
                format!(
                    "has no chat template, which makes the text of {dataset} (format `chat`); \
                     put `chat_template` into its tokenizer_config.json, or give a checkpoint \
                     that was trained on chats"
                ),
            );
            None
        }
        Err(error) => {
            faults.add(error.code(), "model", error.to_string());
            None
        }
    }
}

/// The code of a path that is refused: of the root, or of the thing that should be there.
fn path_code(error: &PathError, unreadable: ErrorCode) -> ErrorCode {
    match error {
        PathError::Malformed | PathError::NotRelative(_) | PathError::Outside(_) => {
            ErrorCode::PathOutsideRoot
        }
        PathError::Missing(_) | PathError::WrongKind { .. } | PathError::Unreadable { .. } => {
            unreadable
        }
    }
}

#[cfg(test)]
mod tests;
