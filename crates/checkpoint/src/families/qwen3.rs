//! Qwen 3, the dense models.

use super::qwen2::{GGUF, slide_upper};
use super::shared::BUFFERS;
use super::{FamilySpec, GgufSpec};
use crate::config::{Defaults, Fields, Keys, LLAMA, Width, rotary};
use crate::{Architecture, Biases, CheckpointError, Family, QkNorm};

pub(super) const QWEN3: FamilySpec = FamilySpec {
    name: "qwen3",
    models: "Qwen 3 (dense)",
    types: &[("qwen3", "Qwen3ForCausalLM")],
    configure,
    safetensors: super::llama::NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "qwen3",
        keys: &Keys::STANDARD,
        names: GGUF,
        constants: |_| {},
    }),
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 32_768,
    kv_heads: Width::Of(32),
    head_dim: Width::Of(128),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = with_head_norms(fields, family, &DEFAULTS)?;
    slide_upper(fields, &mut architecture)?;
    Ok(architecture)
}

/// Queries and keys have a norm, projections of attention perhaps a bias.
pub(super) fn with_head_norms(
    fields: &Fields,
    family: Family,
    defaults: &Defaults,
) -> Result<Architecture, CheckpointError> {
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    Ok(Architecture {
        qk_norm: Some(QkNorm::Head),
        biases: Biases {
            qkv: bias,
            output: bias,
            ..Biases::default()
        },
        ..rotary(fields, family, defaults)?
    })
}
