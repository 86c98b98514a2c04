//! Phi 3, 3.5 and 4: query, key and value in one tensor, gate and up in another.

use super::llama::BUFFERS;
use super::{FamilySpec, GgufSpec};
use crate::config::{Defaults, Fields, Keys, LLAMA, Original, rotary, slide_all};
use crate::names::{NameTable, Take};
use crate::{Architecture, CheckpointError, Family, Place};

pub(super) const PHI3: FamilySpec = FamilySpec {
    name: "phi3",
    models: "Phi 3, 3.5 and 4 (mini, medium, Phi 4 14B)",
    types: &[("phi3", "Phi3ForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "phi3",
        keys: &Keys::STANDARD,
        names: GGUF,
        constants: |_| {},
    }),
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 4096,
    norm_eps: 1e-5,
    partial_rotary: true,
    original: Original::Beside(4096),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    slide_all(fields, &mut architecture, None)?;
    Ok(architecture)
}

const QKV: Take = Take::Stacked(&[Place::Query, Place::Key, Place::Value]);
const GATE_UP: Take = Take::Stacked(&[Place::Gate, Place::Up]);

const NAMES: NameTable = &[
    (Place::Embedding, "model.embed_tokens", Take::Whole),
    (
        Place::AttentionNorm,
        "model.layers.{layer}.input_layernorm",
        Take::Whole,
    ),
    (Place::Query, "model.layers.{layer}.self_attn.qkv_proj", QKV),
    (Place::Key, "model.layers.{layer}.self_attn.qkv_proj", QKV),
    (Place::Value, "model.layers.{layer}.self_attn.qkv_proj", QKV),
    (
        Place::Output,
        "model.layers.{layer}.self_attn.o_proj",
        Take::Whole,
    ),
    (
        Place::MlpNorm,
        "model.layers.{layer}.post_attention_layernorm",
        Take::Whole,
    ),
    (
        Place::Gate,
        "model.layers.{layer}.mlp.gate_up_proj",
        GATE_UP,
    ),
    (Place::Up, "model.layers.{layer}.mlp.gate_up_proj", GATE_UP),
    (
        Place::Down,
        "model.layers.{layer}.mlp.down_proj",
        Take::Whole,
    ),
    (Place::FinalNorm, "model.norm", Take::Whole),
    (Place::Head, "lm_head", Take::Whole),
];

const GGUF: NameTable = &[
    (Place::Embedding, "token_embd", Take::Whole),
    (Place::AttentionNorm, "blk.{layer}.attn_norm", Take::Whole),
    (Place::Query, "blk.{layer}.attn_qkv", QKV),
    (Place::Key, "blk.{layer}.attn_qkv", QKV),
    (Place::Value, "blk.{layer}.attn_qkv", QKV),
    (Place::Output, "blk.{layer}.attn_output", Take::Whole),
    (Place::MlpNorm, "blk.{layer}.ffn_norm", Take::Whole),
    (Place::Gate, "blk.{layer}.ffn_up", GATE_UP),
    (Place::Up, "blk.{layer}.ffn_up", GATE_UP),
    (Place::Down, "blk.{layer}.ffn_down", Take::Whole),
    (Place::FinalNorm, "output_norm", Take::Whole),
    (Place::Head, "output", Take::Whole),
];
