//! StableLM 2 and 3B.

use super::FamilySpec;
use super::shared::{ATTENTION, BLOCK, BUFFERS, ENDS, FINAL_NORM, GATED_MLP, NORMS};
use crate::config::{Defaults, Fields, Keys, LLAMA, Width, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place, QkNorm};

pub(super) const STABLELM: FamilySpec = FamilySpec {
    name: "stablelm",
    models: "StableLM 3B, StableLM 2 1.6B and 12B",
    types: &[("stablelm", "StableLmForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    keys: &Keys::LAYER_NORM,
    max_positions: 4096,
    kv_heads: Width::Of(32),
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    rotary_part: 0.25,
    partial_rotary: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    if fields.flag("use_parallel_residual")? == Some(true) {
        architecture.form = BlockForm::ParallelShared;
    }
    let normed = fields.flag("qk_layernorm")?.unwrap_or(false);
    architecture.qk_norm = normed.then_some(QkNorm::EachHead);
    architecture.biases = Biases {
        qkv: fields.flag("use_qkv_bias")?.unwrap_or(false),
        norm: true,
        ..Biases::default()
    };
    Ok(architecture)
}

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        FINAL_NORM,
        NORMS,
        ATTENTION,
        GATED_MLP,
        &[
            (
                Place::QueryNorm,
                "self_attn.q_layernorm.norms.{head}",
                Take::Whole,
            ),
            (
                Place::KeyNorm,
                "self_attn.k_layernorm.norms.{head}",
                Take::Whole,
            ),
        ],
    ],
};
