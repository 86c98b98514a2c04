//! Command R: attention and MLP read one norm, side by side; neighbours in a head are rotated
//! against each other.

use super::FamilySpec;
use super::shared::{BLOCK, BUFFERS, ENDS, FINAL_NORM, GATED_MLP, NORMS};
use crate::config::{Defaults, Fields, Keys, LLAMA, rotary};
use crate::names::{NameTable, Take};
use crate::{
    Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place, QkNorm, Scales,
};

pub(super) const COHERE: FamilySpec = FamilySpec {
    name: "cohere",
    models: "Command R, Command R+, Aya 23",
    types: &[("cohere", "CohereForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    keys: &Keys::LAYER_NORM,
    max_positions: 8192,
    form: BlockForm::ParallelShared,
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    tied_head: true,
    rope_theta: 500_000.0,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    architecture.biases = Biases {
        qkv: bias,
        output: bias,
        ..Biases::default()
    };
    let normed = fields.flag("use_qk_norm")?.unwrap_or(false);
    architecture.qk_norm = normed.then_some(QkNorm::EachHead);
    architecture.scales = Scales {
        logits: fields.positive("logit_scale")?.unwrap_or(0.0625),
        ..Scales::NONE
    };
    Ok(architecture)
}

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        FINAL_NORM,
        NORMS,
        GATED_MLP,
        &[
            (Place::Query, "self_attn.q_proj", Take::Pairs),
            (Place::Key, "self_attn.k_proj", Take::Pairs),
            (Place::Value, "self_attn.v_proj", Take::Whole),
            (Place::QueryNorm, "self_attn.q_norm", Take::Pairs),
            (Place::KeyNorm, "self_attn.k_norm", Take::Pairs),
            (Place::Output, "self_attn.o_proj", Take::Whole),
        ],
    ],
};
