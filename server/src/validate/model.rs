//! The checkpoint of a request, and its adapter: by headers, or by the small files alone where the
//! weights are on a hub.

use std::path::Path;

use assay_api::{Dtype, ErrorCode, FileSize, ModelInspection, ModelRef};
use assay_checkpoint::{
    Architecture, ChatTemplate, Checkpoint, CheckpointError, Preview, TextTokenizer, Tokenizers,
    inspect, inspect_preview,
};

use super::{Grounds, path_code};
use crate::faults::Faults;
use crate::remote::{Remote, Role};

/// A checkpoint as far as it is here.
pub(crate) enum Model {
    /// By its headers.
    Whole(Checkpoint),
    /// Without weights, which only workers fetch.
    Preview(Preview),
}

impl Model {
    pub(crate) fn architecture(&self) -> &Architecture {
        match self {
            Self::Whole(checkpoint) => checkpoint.architecture(),
            Self::Preview(preview) => preview.architecture(),
        }
    }

    /// What `dtype: auto` is; none if only the weights tell.
    pub(crate) fn default_dtype(&self) -> Option<Dtype> {
        match self {
            Self::Whole(checkpoint) => Some(checkpoint.default_dtype()),
            Self::Preview(preview) => preview.default_dtype(),
        }
    }

    fn tokenizer(&self, kept: &Tokenizers) -> Result<TextTokenizer, CheckpointError> {
        match self {
            Self::Whole(checkpoint) => kept.of(checkpoint),
            Self::Preview(preview) => kept.of_preview(preview),
        }
    }

    pub(crate) fn chat_template(&self) -> Result<Option<ChatTemplate>, CheckpointError> {
        match self {
            Self::Whole(checkpoint) => checkpoint.chat_template(),
            Self::Preview(preview) => preview.chat_template(),
        }
    }

    /// What it is; `model` names it.
    ///
    /// # Errors
    /// The tokenizer or the chat template cannot be used.
    pub(crate) fn inspect(
        &self,
        model: &ModelRef,
        remote: &Remote,
    ) -> Result<ModelInspection, CheckpointError> {
        let listed = |name: &str| remote.weights.get(name).cloned().unwrap_or_default();
        let of_adapter: Vec<FileSize> = model.adapter.as_deref().map(listed).unwrap_or_default();
        let mut inspection = match self {
            Self::Whole(checkpoint) => inspect(checkpoint, &model.path)?,
            Self::Preview(preview) => inspect_preview(preview, &model.path, listed(&model.path))?,
        };
        if inspection.adapter.is_none() {
            inspection.adapter.clone_from(&model.adapter);
        }
        inspection.files.extend(of_adapter);
        Ok(inspection)
    }
}

/// A checkpoint and its tokenizer.
pub(crate) struct Opened {
    pub(crate) model: Model,
    pub(crate) tokenizer: TextTokenizer,
}

/// The fields that name a checkpoint and its adapter.
pub(super) const MODEL: (&str, &str) = ("model", "model.adapter");

/// The checkpoint with its adapter, if it and its tokenizer can be used; the fields are what names
/// the two.
pub(crate) fn open(
    grounds: &Grounds,
    model: &ModelRef,
    (field, adapter_field): (&str, &str),
    faults: &mut Faults,
) -> Option<Opened> {
    let remote = &grounds.remote;
    let mut find = |role: Role, path: &str, field: &str| {
        if remote.refuses(role, path, field, faults) {
            return None;
        }
        let found = remote.fetched.or_below(&grounds.models, path);
        found
            .map_err(|error| {
                let code = path_code(&error, ErrorCode::CheckpointUnreadable);
                faults.add(code, field, error.to_string());
            })
            .ok()
    };
    let found = find(Role::Model, &model.path, field);
    let adapter = model.adapter.as_deref();
    let adapter = adapter.map(|path| find(Role::Adapter, path, adapter_field));
    let (found, adapter) = (found?, adapter.map_or(Some(None), |found| found.map(Some))?);
    let mut refuse = |field: &str, error: &CheckpointError| {
        faults.add(error.code(), field, error.to_string());
    };
    let base = open_base(remote, &model.path, &found);
    let base = base.and_then(|base| Ok((base.tokenizer(&grounds.tokenizers)?, base)));
    let (tokenizer, base) = base.map_err(|error| refuse(field, &error)).ok()?;
    let added = match (adapter, &model.adapter) {
        (Some(adapter), Some(name)) => add(remote, base, &adapter, name),
        _ => Ok(base),
    };
    let model = added.map_err(|error| refuse(adapter_field, &error)).ok()?;
    Some(Opened { model, tokenizer })
}

/// Opens what is here of a checkpoint.
fn open_base(remote: &Remote, name: &str, found: &Path) -> Result<Model, CheckpointError> {
    match remote.fetched.get(name) {
        Some(_) => Preview::open(found, name).map(Model::Preview),
        None => Checkpoint::open(found).map(Model::Whole),
    }
}

/// Adds an adapter. Whether it fits its base can be told only where both are here.
fn add(remote: &Remote, base: Model, adapter: &Path, name: &str) -> Result<Model, CheckpointError> {
    match base {
        Model::Whole(base) if remote.fetched.get(name).is_none() => {
            base.with_adapter(adapter).map(Model::Whole)
        }
        base => {
            Preview::check_adapter(adapter, name)?;
            Ok(base)
        }
    }
}
