//! What a checkpoint says of itself, by its headers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use assay_api::{
    Dtype, FileSize, MemoryNeed, ModelInspection, StoredDtype, Token, TokenizerInspection,
};

use crate::tensor::{WeightDtype, WeightFile};
use crate::{Checkpoint, CheckpointError};

/// Describes a checkpoint; `path` is what was asked for. Nothing of the weights is read.
///
/// # Errors
/// Its tokenizer or its chat template cannot be used.
pub fn inspect(checkpoint: &Checkpoint, path: &str) -> Result<ModelInspection, CheckpointError> {
    let architecture = checkpoint.architecture();
    let parameters = checkpoint.parameters();
    let memory = |dtype: &Dtype| MemoryNeed {
        dtype: *dtype,
        weight_bytes: parameters * dtype.bytes(),
    };
    Ok(ModelInspection {
        path: path.to_owned(),
        adapter: checkpoint.adapter.as_ref().map(|(name, _)| name.clone()),

        family: architecture.family.name().to_owned(),
        parameters,
        stored: stored(checkpoint),
        dtype: checkpoint.default_dtype(),
        max_positions: architecture.max_positions as u64,
        layers: architecture.blocks.len() as u64,
        hidden_size: architecture.hidden_size as u64,
        heads: architecture.heads as u64,
        key_value_heads: architecture.kv_heads as u64,
        vocab_size: architecture.vocab_size as u64,
        tied_head: architecture.tied_head,
        files: checkpoint.files.files.iter().map(file_size).collect(),
        memory: Dtype::ALL.iter().map(memory).collect(),
        tokenizer: tokenizer(checkpoint)?,
        warnings: checkpoint.warnings().to_vec(),
    })
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

fn tokenizer(checkpoint: &Checkpoint) -> Result<TokenizerInspection, CheckpointError> {
    let tokenizer = checkpoint.tokenizer()?;
    let template = checkpoint.chat_template()?;
    let token = |id: Option<u32>| {
        let id = id?;
        let text = tokenizer.token(id)?;
        Some(Token { id, text })
    };
    Ok(TokenizerInspection {
        digest: tokenizer.digest().to_owned(),
        kind: tokenizer.kind().to_owned(),
        vocab_size: tokenizer.vocab_size() as u64,
        bos: token(tokenizer.bos()),
        eos: token(tokenizer.eos()),
        adds_bos: tokenizer.adds_bos(),
        chat_template: template.map(|template| template.digest().to_owned()),
    })
}
