//! Qwen 2 and 2.5.

use super::llama::{BUFFERS, NAMES};
use super::{FamilySpec, GgufSpec};
use crate::config::{
    Defaults, Fields, Keys, LLAMA, MAX_LAYERS, MAX_POSITIONS, Width, every_block, layer_types,
    rotary,
};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, CheckpointError, Family, Place};

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
    let window = match fields.size("sliding_window", MAX_POSITIONS)? {
        None if !fields.names("sliding_window") => Some(4096),
        window => window,
    };
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
pub(super) const GGUF: NameTable = &[
    (Place::Embedding, "token_embd", Take::Whole),
    (Place::AttentionNorm, "blk.{layer}.attn_norm", Take::Whole),
    (Place::Query, "blk.{layer}.attn_q", Take::Whole),
    (Place::Key, "blk.{layer}.attn_k", Take::Whole),
    (Place::Value, "blk.{layer}.attn_v", Take::Whole),
    (Place::QueryNorm, "blk.{layer}.attn_q_norm", Take::Whole),
    (Place::KeyNorm, "blk.{layer}.attn_k_norm", Take::Whole),
    (Place::Output, "blk.{layer}.attn_output", Take::Whole),
    (Place::MlpNorm, "blk.{layer}.ffn_norm", Take::Whole),
    (Place::Gate, "blk.{layer}.ffn_gate", Take::Whole),
    (Place::Up, "blk.{layer}.ffn_up", Take::Whole),
    (Place::Down, "blk.{layer}.ffn_down", Take::Whole),
    (Place::FinalNorm, "output_norm", Take::Whole),
    (Place::Head, "output", Take::Whole),
];
