//! Granite 3: Llama with multipliers.

use super::FamilySpec;
use super::llama::NAMES;
use super::shared::BUFFERS;
use crate::config::{Fields, LLAMA, every_block, rotary};
use crate::{Architecture, Biases, CheckpointError, Family, Scales};

pub(super) const GRANITE: FamilySpec = FamilySpec {
    name: "granite",
    models: "Granite 3 (dense)",
    types: &[("granite", "GraniteForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &LLAMA)?;
    let attention = fields.flag("attention_bias")?.unwrap_or(false);
    architecture.biases = Biases {
        qkv: attention,
        output: attention,
        mlp: fields.flag("mlp_bias")?.unwrap_or(false),
        ..Biases::default()
    };
    let multiplier = |name: &str| Ok(fields.positive(name)?.unwrap_or(1.0));
    architecture.scales = Scales {
        embedding: multiplier("embedding_multiplier")?,
        residual: multiplier("residual_multiplier")?,
        logits: multiplier("logits_scaling")?.recip(),
        ..Scales::NONE
    };
    let scale = multiplier("attention_multiplier")?;
    every_block(&mut architecture, |_, block| block.attention_scale = scale);
    Ok(architecture)
}
