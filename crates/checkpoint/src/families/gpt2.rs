//! GPT-2: learned positions, matrices stored as `[in, out]`.

use super::shared::{GGUF_BLOCK, GGUF_ENDS, GGUF_NORMS};
use super::{FamilySpec, GgufSpec};
use crate::config::{Defaults, Fields, Keys, LLAMA, Width, common, every_block};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, CheckpointError, Family, NormKind, Place};

pub(super) const GPT2: FamilySpec = FamilySpec {
    name: "gpt2",
    models: "GPT-2, DistilGPT-2",
    types: &[("gpt2", "GPT2LMHeadModel")],
    configure,
    safetensors: NAMES,
    buffers: &[".attn.bias", ".attn.masked_bias"],
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "gpt2",
        keys: &KEYS,
        names: GGUF,
        constants: |_| {},
    }),
};

const KEYS: Keys = Keys {
    kv_heads: None,
    head_dim: None,
    hidden_size: "n_embd",
    intermediate_size: "n_inner",
    layers: "n_layer",
    heads: "n_head",
    max_positions: "n_positions",
    norm_eps: Some("layer_norm_epsilon"),
    activation: "activation_function",
    ..Keys::STANDARD
};

const DEFAULTS: Defaults = Defaults {
    keys: &KEYS,
    max_positions: 1024,
    intermediate_size: Width::Derived,
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    activation: "gelu_new",
    gated: false,
    tied_head: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = common(fields, family, &DEFAULTS)?;
    fields.refuse(
        "add_cross_attention",
        "only decoders without an encoder are",
    )?;
    architecture.biases = Biases {
        qkv: true,
        output: true,
        mlp: true,
        norm: true,
        ..Biases::default()
    };
    let scaled = fields.flag("scale_attn_weights")?.unwrap_or(true);
    let by_layer = fields.flag("scale_attn_by_inverse_layer_idx")?;
    every_block(&mut architecture, |index, block| {
        if !scaled {
            block.attention_scale = 1.0;
        }
        if by_layer == Some(true) {
            block.attention_scale /= (index + 1) as f64;
        }
    });
    Ok(architecture)
}

const QKV: Take = Take::StackedTransposed(&[Place::Query, Place::Key, Place::Value]);

const NAMES: NameTable = NameTable {
    block: "transformer.h.{layer}.",
    lists: &[&[
        (Place::Embedding, "transformer.wte", Take::Whole),
        (Place::Positions, "transformer.wpe", Take::Whole),
        (Place::AttentionNorm, "ln_1", Take::Whole),
        (Place::Query, "attn.c_attn", QKV),
        (Place::Key, "attn.c_attn", QKV),
        (Place::Value, "attn.c_attn", QKV),
        (Place::Output, "attn.c_proj", Take::Transposed),
        (Place::MlpNorm, "ln_2", Take::Whole),
        (Place::Up, "mlp.c_fc", Take::Transposed),
        (Place::Down, "mlp.c_proj", Take::Transposed),
        (Place::FinalNorm, "transformer.ln_f", Take::Whole),
        (Place::Head, "lm_head", Take::Whole),
    ]],
};

const GGUF_QKV: Take = Take::Stacked(&[Place::Query, Place::Key, Place::Value]);

const GGUF: NameTable = NameTable {
    block: GGUF_BLOCK,
    lists: &[
        GGUF_ENDS,
        GGUF_NORMS,
        &[
            (Place::Positions, "position_embd", Take::Whole),
            (Place::Query, "attn_qkv", GGUF_QKV),
            (Place::Key, "attn_qkv", GGUF_QKV),
            (Place::Value, "attn_qkv", GGUF_QKV),
            (Place::Output, "attn_output", Take::Whole),
            (Place::Up, "ffn_up", Take::Whole),
            (Place::Down, "ffn_down", Take::Whole),
        ],
    ],
};
