//! What a checkpoint says of itself, by its headers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use assay_api::{
    Dtype, FileSize, MemoryNeed, ModelInspection, StoredDtype, Token, TokenizerInspection,
};

use crate::tensor::{WeightDtype, WeightFile};
use crate::{Architecture, ChatTemplate, Checkpoint, CheckpointError, Preview, TextTokenizer};

/// Describes a checkpoint; `path` is what was asked for. Nothing of the weights is read.
///
/// # Errors
/// Its tokenizer or its chat template cannot be used.
pub fn inspect(checkpoint: &Checkpoint, path: &str) -> Result<ModelInspection, CheckpointError> {
    let adapter = checkpoint.adapter.as_ref();
    Ok(ModelInspection {
        adapter: adapter.map(|(name, _)| name.clone()),
        stored: stored(checkpoint),
        files: checkpoint.files.files.iter().map(file_size).collect(),
        warnings: checkpoint.warnings().to_vec(),
        ..of_architecture(
            path,
            checkpoint.architecture(),
            checkpoint.parameters(),
            checkpoint.default_dtype(),
            tokenizer(&checkpoint.tokenizer()?, checkpoint.chat_template()?),
        )
    })
}

/// Describes a checkpoint whose weights are not here, as far as its small files do; `files` are
/// those of the weights, wherever they are.
///
/// # Errors
/// Its tokenizer or its chat template cannot be used.
pub fn inspect_preview(
    preview: &Preview,
    path: &str,
    files: Vec<FileSize>,
) -> Result<ModelInspection, CheckpointError> {
    let mut warnings = vec![
        "the weights are not fetched: parameters and memory follow from config.json, and whether \
         the tensors fit is checked when a job is planned"
            .to_owned(),
    ];
    if preview.default_dtype().is_none() {
        warnings.push(
            "config.json names no dtype, so that `auto` cannot be resolved before the weights are \
             there; a job has to name one"
                .to_owned(),
        );
    }
    Ok(ModelInspection {
        files,
        warnings,
        ..of_architecture(
            path,
            preview.architecture(),
            preview.parameters(),
            preview.default_dtype().unwrap_or(Dtype::Float32),
            tokenizer(&preview.tokenizer()?, preview.chat_template()?),
        )
    })
}

/// What follows from an architecture and a tokenizer.
fn of_architecture(
    path: &str,
    architecture: &Architecture,
    parameters: u64,
    dtype: Dtype,
    tokenizer: TokenizerInspection,
) -> ModelInspection {
    let memory = |dtype: &Dtype| MemoryNeed {
        dtype: *dtype,
        weight_bytes: parameters * dtype.bytes(),
    };
    ModelInspection {
        path: path.to_owned(),
        adapter: None,
        family: architecture.family.name().to_owned(),
        parameters,
        stored: Vec::new(),
        dtype,
        max_positions: architecture.max_positions as u64,
        layers: architecture.blocks.len() as u64,
        hidden_size: architecture.hidden_size as u64,
        heads: architecture.heads as u64,
        key_value_heads: architecture.kv_heads as u64,
        vocab_size: architecture.vocab_size as u64,
        tied_head: architecture.tied_head,
        files: Vec::new(),
        memory: Dtype::ALL.iter().map(memory).collect(),
        tokenizer,
        warnings: Vec::new(),
    }
}

fn stored(checkpoint: &Checkpoint) -> Vec<StoredDtype> {
    let mut parameters: BTreeMap<&str, u64> = BTreeMap::new();
    for weight in checkpoint.weights.values() {
        let dtype = weight.format().plain().map(WeightDtype::name);
        let name = dtype.unwrap_or_else(|| weight.format().spec().name);
        *parameters.entry(name).or_default() += weight.elements() as u64;
    }
    let mut stored: Vec<StoredDtype> = parameters
        .into_iter()
        .map(|(dtype, parameters)| StoredDtype {
            dtype: dtype.to_owned(),
            parameters,
        })
        .collect();
    stored.sort_by_key(|one| Reverse(one.parameters));
    stored
}

fn file_size(file: &WeightFile) -> FileSize {
    let name = file.path.file_name().unwrap_or_default();
    FileSize {
        name: name.to_string_lossy().into_owned(),
        bytes: file.map.len() as u64,
    }
}

fn tokenizer(tokenizer: &TextTokenizer, template: Option<ChatTemplate>) -> TokenizerInspection {
    let token = |id: Option<u32>| {
        let id = id?;
        let text = tokenizer.token(id)?;
        Some(Token { id, text })
    };
    TokenizerInspection {
        digest: tokenizer.digest().to_owned(),
        kind: tokenizer.kind().to_owned(),
        vocab_size: tokenizer.vocab_size() as u64,
        bos: token(tokenizer.bos()),
        eos: token(tokenizer.eos()),
        adds_bos: tokenizer.adds_bos(),
        chat_template: template.map(|template| template.digest().to_owned()),
    }
}
