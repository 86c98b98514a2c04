//! Llama 1 to 3 and everything stored under its name; the names that most families share.

use super::{FamilySpec, GgufSpec};
use crate::config::{Fields, Keys, LLAMA as DEFAULTS, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, CheckpointError, Family, Place};

pub(super) const LLAMA: FamilySpec = FamilySpec {
    name: "llama",
    models: "Llama 1 to 3.3, Vicuna, TinyLlama, SmolLM 1 and 2, Yi, DeepSeek LLM",
    types: &[("llama", "LlamaForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "llama",
        keys: &Keys::STANDARD,
        names: GGUF,
        constants: |_| {},
    }),
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let attention = fields.flag("attention_bias")?.unwrap_or(false);
    Ok(Architecture {
        biases: Biases {
            qkv: attention,
            output: attention,
            mlp: fields.flag("mlp_bias")?.unwrap_or(false),
            ..Biases::default()
        },
        ..rotary(fields, family, &DEFAULTS)?
    })
}

pub(super) const BUFFERS: &[&str] = &["rotary_emb.inv_freq"];

pub(super) const NAMES: NameTable = &[
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
    (Place::FinalNorm, "model.norm", Take::Whole),
    (Place::Head, "lm_head", Take::Whole),
];

const GGUF: NameTable = &[
    (Place::Embedding, "token_embd", Take::Whole),
    (Place::AttentionNorm, "blk.{layer}.attn_norm", Take::Whole),
    (Place::Query, "blk.{layer}.attn_q", Take::Pairs),
    (Place::Key, "blk.{layer}.attn_k", Take::Pairs),
    (Place::Value, "blk.{layer}.attn_v", Take::Whole),
    (Place::Output, "blk.{layer}.attn_output", Take::Whole),
    (Place::MlpNorm, "blk.{layer}.ffn_norm", Take::Whole),
    (Place::Gate, "blk.{layer}.ffn_gate", Take::Whole),
    (Place::Up, "blk.{layer}.ffn_up", Take::Whole),
    (Place::Down, "blk.{layer}.ffn_down", Take::Whole),
    (Place::FinalNorm, "output_norm", Take::Whole),
    (Place::Head, "output", Take::Whole),
];
