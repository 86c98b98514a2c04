//! GPT-NeoX and Pythia: attention and MLP side by side.

use super::FamilySpec;
use crate::config::{Defaults, Fields, Keys, LLAMA, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place};

pub(super) const GPT_NEOX: FamilySpec = FamilySpec {
    name: "gpt_neox",
    models: "GPT-NeoX 20B, Pythia, Dolly 2, RedPajama INCITE",
    types: &[("gpt_neox", "GPTNeoXForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: &[
        ".attention.bias",
        ".attention.masked_bias",
        "rotary_emb.inv_freq",
    ],
    other_parts: &[],
    gguf: None,
};

const KEYS: Keys = Keys {
    kv_heads: None,
    head_dim: None,
    norm_eps: Some("layer_norm_eps"),
    rope_theta: "rotary_emb_base",
    rotary_part: "rotary_pct",
    ..Keys::STANDARD
};

const DEFAULTS: Defaults = Defaults {
    keys: &KEYS,
    form: BlockForm::Parallel,
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    activation: "gelu",
    gated: false,
    rotary_part: 0.25,
    partial_rotary: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    if fields.flag("use_parallel_residual")? == Some(false) {
        architecture.form = BlockForm::PreNorm;
    }
    let attention = fields.flag("attention_bias")?.unwrap_or(true);
    architecture.biases = Biases {
        qkv: attention,
        output: attention,
        mlp: true,
        norm: true,
        ..Biases::default()
    };
    Ok(architecture)
}

const NAMES: NameTable = NameTable {
    block: "gpt_neox.layers.{layer}.",
    lists: &[&[
        (Place::Embedding, "gpt_neox.embed_in", Take::Whole),
        (Place::AttentionNorm, "input_layernorm", Take::Whole),
        (Place::Query, "attention.query_key_value", Take::Grouped),
        (Place::Key, "attention.query_key_value", Take::Grouped),
        (Place::Value, "attention.query_key_value", Take::Grouped),
        (Place::Output, "attention.dense", Take::Whole),
        (Place::MlpNorm, "post_attention_layernorm", Take::Whole),
        (Place::Up, "mlp.dense_h_to_4h", Take::Whole),
        (Place::Down, "mlp.dense_4h_to_h", Take::Whole),
        (Place::FinalNorm, "gpt_neox.final_layer_norm", Take::Whole),
        (Place::Head, "embed_out", Take::Whole),
        (Place::Head, "lm_head", Take::Whole),
    ]],
};
