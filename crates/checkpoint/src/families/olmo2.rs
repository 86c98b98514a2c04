//! OLMo 2: norms behind attention and MLP, and over all of a projection.

use super::FamilySpec;
use super::llama::BUFFERS;
use crate::config::{Defaults, Fields, LLAMA, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place, QkNorm};

pub(super) const OLMO2: FamilySpec = FamilySpec {
    name: "olmo2",
    models: "OLMo 2",
    types: &[("olmo2", "Olmo2ForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    form: BlockForm::PostNorm,
    norm: NormKind::RmsFloat,
    norm_eps: 1e-5,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    Ok(Architecture {
        qk_norm: Some(QkNorm::Projection),
        biases: Biases {
            qkv: bias,
            output: bias,
            ..Biases::default()
        },
        ..rotary(fields, family, &DEFAULTS)?
    })
}

const NAMES: NameTable = &[
    (Place::Embedding, "model.embed_tokens", Take::Whole),
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
        Place::AttentionPostNorm,
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
    (
        Place::MlpPostNorm,
        "model.layers.{layer}.post_feedforward_layernorm",
        Take::Whole,
    ),
    (Place::FinalNorm, "model.norm", Take::Whole),
    (Place::Head, "lm_head", Take::Whole),
];
