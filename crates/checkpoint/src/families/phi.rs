//! Phi 1, 1.5 and 2: attention and MLP read one norm, side by side.

use super::FamilySpec;
use super::shared::{BLOCK, BUFFERS, ENDS};
use crate::config::{Defaults, Fields, Keys, LLAMA, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place, QkNorm};

pub(super) const PHI: FamilySpec = FamilySpec {
    name: "phi",
    models: "Phi 1, 1.5 and 2",
    types: &[("phi", "PhiForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    keys: &Keys::LAYER_NORM,
    form: BlockForm::ParallelShared,
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    activation: "gelu_new",
    gated: false,
    rotary_part: 0.5,
    partial_rotary: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let normed = fields.flag("qk_layernorm")?.unwrap_or(false);
    Ok(Architecture {
        qk_norm: normed.then_some(QkNorm::Head),
        biases: Biases {
            qkv: true,
            output: true,
            mlp: true,
            norm: true,
            qk_norm: true,
            head: true,
        },
        ..rotary(fields, family, &DEFAULTS)?
    })
}

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        &[
            (Place::AttentionNorm, "input_layernorm", Take::Whole),
            (Place::Query, "self_attn.q_proj", Take::Whole),
            (Place::Key, "self_attn.k_proj", Take::Whole),
            (Place::Value, "self_attn.v_proj", Take::Whole),
            (Place::QueryNorm, "self_attn.q_layernorm", Take::Whole),
            (Place::KeyNorm, "self_attn.k_layernorm", Take::Whole),
            (Place::Output, "self_attn.dense", Take::Whole),
            (Place::Up, "mlp.fc1", Take::Whole),
            (Place::Down, "mlp.fc2", Take::Whole),
            (Place::FinalNorm, "model.final_layernorm", Take::Whole),
        ],
    ],
};
