//! What a job must be before it is stored. Reads headers of files, so it blocks.

use std::collections::HashMap;

use assay_api::{
    Convention, DatasetFormat, DatasetRef, Dtype, DtypeRequest, ErrorCode, JobRequest, Method,
    MethodRequest,
};
use assay_checkpoint::{Checkpoint, CheckpointError};
use assay_data::{PathError, Root};

use crate::error::ApiError;
use crate::faults::Faults;

const MAX_DATASETS: usize = 100;
const MAX_TAGS: usize = 64;
const MAX_TAG_KEY: usize = 64;
/// Characters of a name, the value of a tag, or the name of a field.
const MAX_TEXT: usize = 256;
/// Tokens of a window where the request names none and the model has that many positions.
const DEFAULT_WINDOW: u32 = 2048;

/// What a request leaves open, filled in from the checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) method: Method,
    pub(crate) dtype: Dtype,
}

/// Checks everything about `request` that can be checked without reading weights or text.
///
/// # Errors
/// One problem that names every field at fault. `CheckpointError` and paths keep their codes.
pub(crate) fn resolve(
    models: &Root,
    data: &Root,
    request: &JobRequest,
) -> Result<Resolved, ApiError> {
    let mut faults = Faults::default();
    labels(request, &mut faults);
    datasets(&request.datasets, data, &mut faults);
    let checkpoint = checkpoint(models, &request.model, &mut faults);
    let positions = checkpoint.as_ref().map(|c| c.architecture().max_positions);
    let window = window(&request.method, positions, &mut faults);
    faults.into_result()?;

    let checkpoint = checkpoint.expect("a checkpoint that does not open is a fault");
    let dtype = match request.dtype {
        DtypeRequest::Auto => checkpoint.default_dtype(),
        DtypeRequest::Float32 => Dtype::Float32,
        DtypeRequest::Bfloat16 => Dtype::Bfloat16,
    };
    Ok(Resolved {
        method: Method {
            convention: request.method.convention,
            window,
        },
        dtype,
    })
}

fn labels(request: &JobRequest, faults: &mut Faults) {
    if let Some(name) = &request.name {
        text("name", name, faults);
    }
    let tags = &request.tags;
    faults.require(
        tags.len() <= MAX_TAGS,
        "tags",
        format!("has {} tags; {MAX_TAGS} are taken", tags.len()),
    );
    for (key, value) in tags.iter().take(MAX_TAGS) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        faults.require(
            (1..=MAX_TAG_KEY).contains(&key.len()) && key.chars().all(plain),
            "tags",
            format!(
                "{key:?} is not a tag's key; those are 1 to {MAX_TAG_KEY} ASCII letters, digits, \
                 `.`, `_`, `-` or `/`"
            ),
        );
        let length = value.chars().count();
        faults.require(
            length <= MAX_TEXT && !value.chars().any(char::is_control),
            &format!("tags.{key}"),
            format!("takes at most {MAX_TEXT} characters, none of them a control character"),
        );
    }
}

fn text(field: &str, value: &str, faults: &mut Faults) {
    let length = value.chars().count();
    faults.require(
        (1..=MAX_TEXT).contains(&length) && !value.chars().any(char::is_control),
        field,
        format!("takes 1 to {MAX_TEXT} characters, none of them a control character"),
    );
}

fn datasets(datasets: &[DatasetRef], data: &Root, faults: &mut Faults) {
    let count = datasets.len();
    faults.require(
        count >= 1,
        "datasets",
        "is empty; name at least one dataset",
    );
    faults.require(
        count <= MAX_DATASETS,
        "datasets",
        format!("has {count} datasets; a job takes {MAX_DATASETS}, post several jobs"),
    );
    let mut names = HashMap::new();
    for (index, entry) in datasets.iter().take(MAX_DATASETS).enumerate() {
        let field = |name: &str| format!("datasets[{index}].{name}");
        dataset(entry, data, field, faults);
        if let Some(first) = names.insert(entry.name(), index) {
            let name = entry.name();
            faults.require(
                false,
                &field("name"),
                format!("{name:?} is datasets[{first}] already; give each a `name` of its own"),
            );
        }
    }
}

fn dataset(entry: &DatasetRef, data: &Root, field: impl Fn(&str) -> String, faults: &mut Faults) {
    if let Some(name) = &entry.name {
        text(&field("name"), name, faults);
    }
    if let Some(name) = &entry.field {
        text(&field("field"), name, faults);
        faults.require(
            entry.format() == DatasetFormat::Jsonl,
            &field("field"),
            "is for the format `jsonl` only; leave it out or set `\"format\": \"jsonl\"`",
        );
    }
    for (name, limit) in [
        ("limit_documents", entry.limit_documents),
        ("limit_tokens", entry.limit_tokens),
    ] {
        // The ledger's integers are signed.
        let most = i64::MAX.unsigned_abs();
        faults.require(
            limit.is_none_or(|limit| (1..=most).contains(&limit)),
            &field(name),
            format!("takes a number from 1 to {most}; leave it out for no limit"),
        );
    }
    if let Err(error) = data.file(&entry.path) {
        faults.add(
            path_code(&error, ErrorCode::DatasetUnreadable),
            field("path"),
            error.to_string(),
        );
    }
}

/// The checkpoint, if it and its tokenizer are fit for a job.
fn checkpoint(models: &Root, path: &str, faults: &mut Faults) -> Option<Checkpoint> {
    let found = models
        .file_or_directory(path)
        .map_err(|error| {
            faults.add(
                path_code(&error, ErrorCode::CheckpointUnreadable),
                "model",
                error.to_string(),
            );
        })
        .ok()?;
    let open = || -> Result<Checkpoint, CheckpointError> {
        let checkpoint = Checkpoint::open(&found)?;
        checkpoint.tokenizer()?.prefix()?;
        Ok(checkpoint)
    };
    open()
        .map_err(|error| faults.add(error.code(), "model", error.to_string()))
        .ok()
}

/// The window of the method. `positions` is none if the checkpoint did not open; then the
/// request is refused anyway.
fn window(method: &MethodRequest, positions: Option<usize>, faults: &mut Faults) -> u32 {
    let Convention::Rolling = method.convention;
    let most = u32::try_from(positions.unwrap_or(usize::MAX)).unwrap_or(u32::MAX);
    let window = method.window.unwrap_or(most.min(DEFAULT_WINDOW));
    let fault = if window == 0 {
        Some("is 0; a window has at least 1 token".to_owned())
    } else if window > most {
        Some(format!(
            "is {window}, but the model has {most} positions; ask for {most} or less"
        ))
    } else {
        None
    };
    if let Some(detail) = fault {
        faults.add(ErrorCode::MethodInvalid, "method.window", detail);
    }
    window
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
