//! Qwen 3, the mixtures of experts.

use super::FamilySpec;
use super::llama::BUFFERS;
use super::qwen3::with_head_norms;
use crate::config::{
    Defaults, Fields, LLAMA, MAX_LAYERS, MAX_WIDTH, Width, every_block, experts, slide_all,
};
use crate::names::{NameTable, Take};
use crate::{Architecture, CheckpointError, Experts, Family, Place};

pub(super) const QWEN3_MOE: FamilySpec = FamilySpec {
    name: "qwen3_moe",
    models: "Qwen 3 30B-A3B and 235B-A22B",
    types: &[("qwen3_moe", "Qwen3MoeForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 32_768,
    kv_heads: Width::Of(4),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = with_head_norms(fields, family, &DEFAULTS)?;
    if fields.flag("use_sliding_window")?.unwrap_or(false) {
        slide_all(fields, &mut architecture, Some(4096))?;
    }
    // transformers 5 writes it under the other name.
    let count = ["num_experts", "num_local_experts"]
        .into_iter()
        .find(|name| fields.get(name).is_some())
        .unwrap_or("num_experts");
    architecture.experts = Some(Experts {
        intermediate_size: fields
            .size("moe_intermediate_size", MAX_WIDTH)?
            .unwrap_or(768),
        normalised: fields.flag("norm_topk_prob")?.unwrap_or(false),
        ..experts(fields, count, (128, 8))?
    });
    let step = fields.size("decoder_sparse_step", MAX_LAYERS)?.unwrap_or(1);
    let dense = fields.list("mlp_only_layers", "integers", serde_json::Value::as_u64)?;
    let dense = dense.unwrap_or_default();
    every_block(&mut architecture, |index, block| {
        block.experts = (index + 1) % step == 0 && !dense.contains(&(index as u64));
    });
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
        Place::QueryNorm,
        "model.layers.{layer}.self_attn.q_norm",
        Take::Whole,
    ),
    (
        Place::KeyNorm,
        "model.layers.{layer}.self_attn.k_norm",
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
        Place::Gate,
        "model.layers.{layer}.mlp.gate_proj",
        Take::Whole,
    ),
    (Place::Up, "model.layers.{layer}.mlp.up_proj", Take::Whole),
    (
        Place::Down,
        "model.layers.{layer}.mlp.down_proj",
        Take::Whole,
    ),
    (Place::Router, "model.layers.{layer}.mlp.gate", Take::Whole),
    (
        Place::ExpertGate,
        "model.layers.{layer}.mlp.experts.{expert}.gate_proj",
        Take::Whole,
    ),
    (
        Place::ExpertUp,
        "model.layers.{layer}.mlp.experts.{expert}.up_proj",
        Take::Whole,
    ),
    (
        Place::ExpertDown,
        "model.layers.{layer}.mlp.experts.{expert}.down_proj",
        Take::Whole,
    ),
    (Place::FinalNorm, "model.norm", Take::Whole),
    (Place::Head, "lm_head", Take::Whole),
];
