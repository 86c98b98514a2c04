//! Mixtral.

use super::FamilySpec;
use super::llama::BUFFERS;
use crate::config::{Defaults, Fields, LLAMA, Width, every_block, experts, rotary, slide_all};
use crate::names::{NameTable, Take};
use crate::{Architecture, CheckpointError, Experts, Family, Place};

pub(super) const MIXTRAL: FamilySpec = FamilySpec {
    name: "mixtral",
    models: "Mixtral 8x7B and 8x22B",
    types: &[("mixtral", "MixtralForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 131_072,
    kv_heads: Width::Of(8),
    norm_eps: 1e-5,
    rope_theta: 1e6,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    slide_all(fields, &mut architecture, None)?;
    architecture.experts = Some(Experts {
        intermediate_size: architecture.intermediate_size,
        ..experts(fields, "num_local_experts", (8, 2))?
    });
    every_block(&mut architecture, |_, block| block.experts = true);
    Ok(architecture)
}

const NAMES: NameTable = &[
    (Place::Embedding, "model.embed_tokens", Take::Whole),
    (
        Place::AttentionNorm,
        "model.layers.{layer}.input_layernorm",
        Take::Whole,
    ),
    (
        Place::Query,
        "model.layers.{layer}.self_attn.q_proj",
        Take::Whole,
    ),
    (
        Place::Key,
        "model.layers.{layer}.self_attn.k_proj",
        Take::Whole,
    ),
    (
        Place::Value,
        "model.layers.{layer}.self_attn.v_proj",
        Take::Whole,
    ),
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
        Place::Router,
        "model.layers.{layer}.block_sparse_moe.gate",
        Take::Whole,
    ),
    (
        Place::ExpertGate,
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w1",
        Take::Whole,
    ),
    (
        Place::ExpertUp,
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w3",
        Take::Whole,
    ),
    (
        Place::ExpertDown,
        "model.layers.{layer}.block_sparse_moe.experts.{expert}.w2",
        Take::Whole,
    ),
    (Place::FinalNorm, "model.norm", Take::Whole),
    (Place::Head, "lm_head", Take::Whole),
];
