//! Qwen 2 and 2.5.

use super::llama::NAMES;
use super::shared::{
    BUFFERS, GGUF_ATTENTION, GGUF_BLOCK, GGUF_ENDS, GGUF_MLP, GGUF_NORMS, GGUF_QK_NORMS,
};
use super::{FamilySpec, GgufSpec};
use crate::config::{
    Defaults, Fields, Keys, LLAMA, MAX_LAYERS, Width, every_block, layer_types, rotary, window,
};
use crate::names::NameTable;
use crate::{Architecture, Biases, CheckpointError, Family};

pub(super) const QWEN2: FamilySpec = FamilySpec {
    name: "qwen2",
    models: "Qwen 2, 2.5, QwQ, DeepSeek R1 distilled to Qwen",
    types: &[("qwen2", "Qwen2ForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "qwen2",
        keys: &Keys::STANDARD,
        names: GGUF,
        constants: |_| {},
    }),
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 32_768,
    kv_heads: Width::Of(32),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    architecture.biases = Biases {
        qkv: true,
        ..Biases::default()
    };
    slide_upper(fields, &mut architecture)?;
    Ok(architecture)
}

/// Gives the blocks from `max_window_layers` on, or those that `layer_types` names, the window
/// `sliding_window`, if `use_sliding_window` is set.
pub(super) fn slide_upper(
    fields: &Fields,
    architecture: &mut Architecture,
) -> Result<(), CheckpointError> {
    if !fields.flag("use_sliding_window")?.unwrap_or(false) {
        return Ok(());
    }
    let window = window(fields, Some(4096))?;
    let first = match fields.get("max_window_layers") {
        Some(value) if value.as_u64() == Some(0) => 0,
        _ => fields.size("max_window_layers", MAX_LAYERS)?.unwrap_or(28),
    };
    let kinds = layer_types(fields, architecture.blocks.len())?;
    every_block(architecture, |index, block| {
        let slides = kinds.as_ref().map_or(index >= first, |kinds| kinds[index]);
        block.window = window.filter(|_| slides);
    });
    Ok(())
}

/// Those of most architectures in GGUF files.
pub(super) const GGUF: NameTable = NameTable {
    block: GGUF_BLOCK,
    lists: &[
        GGUF_ENDS,
        GGUF_NORMS,
        GGUF_ATTENTION,
        GGUF_QK_NORMS,
        GGUF_MLP,
    ],
};
