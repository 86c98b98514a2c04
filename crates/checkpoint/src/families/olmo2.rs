//! OLMo 2: norms behind attention and MLP, and over all of a projection.

use super::FamilySpec;
use super::shared::{ATTENTION, BLOCK, BUFFERS, ENDS, FINAL_NORM, GATED_MLP, QK_NORMS};
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

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        FINAL_NORM,
        ATTENTION,
        QK_NORMS,
        GATED_MLP,
        &[
            (
                Place::AttentionPostNorm,
                "post_attention_layernorm",
                Take::Whole,
            ),
            (
                Place::MlpPostNorm,
                "post_feedforward_layernorm",
                Take::Whole,
            ),
        ],
    ],
};
