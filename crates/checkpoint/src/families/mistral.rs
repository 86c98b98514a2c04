//! Mistral 7B, Nemo, Small and Large.

use super::FamilySpec;
use super::llama::NAMES;
use super::shared::BUFFERS;
use crate::config::{Defaults, Fields, LLAMA, Width, rotary, slide_all};
use crate::{Architecture, CheckpointError, Family};

pub(super) const MISTRAL: FamilySpec = FamilySpec {
    name: "mistral",
    models: "Mistral 7B, Nemo, Small, Large, Zephyr",
    types: &[("mistral", "MistralForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 131_072,
    kv_heads: Width::Of(8),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    slide_all(fields, &mut architecture, Some(4096))?;
    Ok(architecture)
}
