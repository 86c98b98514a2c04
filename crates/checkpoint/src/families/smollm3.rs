//! SmolLM 3: some blocks know no positions.

use super::FamilySpec;
use super::llama::NAMES;
use super::shared::BUFFERS;
use crate::config::{
    Defaults, Fields, LLAMA, MAX_LAYERS, MAX_POSITIONS, Width, every_block, layer_types, rotary,
};
use crate::{Architecture, Biases, CheckpointError, Family};

pub(super) const SMOLLM3: FamilySpec = FamilySpec {
    name: "smollm3",
    models: "SmolLM 3",
    types: &[("smollm3", "SmolLM3ForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 32_768,
    kv_heads: Width::Of(4),
    tied_head: true,
    rope_theta: 2e6,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    let attention = fields.flag("attention_bias")?.unwrap_or(false);
    architecture.biases = Biases {
        qkv: attention,
        output: attention,
        mlp: fields.flag("mlp_bias")?.unwrap_or(false),
        ..Biases::default()
    };
    let layers = architecture.blocks.len();
    let rotates = rotates(fields, layers)?;
    // Where the kinds of layers are listed, the list alone decides.
    let kinds = layer_types(fields, layers)?;
    let slides = kinds.is_some() || fields.flag("use_sliding_window")?.unwrap_or(false);
    let window = if slides {
        fields.size("sliding_window", MAX_POSITIONS)?
    } else {
        None
    };
    every_block(&mut architecture, |index, block| {
        let slides = kinds.as_ref().map_or(!rotates[index], |kinds| kinds[index]);
        block.rope = rotates[index].then_some(0);
        block.window = window.filter(|_| slides);
    });
    Ok(architecture)
}

/// Which blocks rotate: `no_rope_layers` has a 1 for those that do.
fn rotates(fields: &Fields, layers: usize) -> Result<Vec<bool>, CheckpointError> {
    let name = "no_rope_layers";
    let said = fields.list(name, "zeros and ones", |value| {
        value.as_u64().filter(|number| *number <= 1)
    })?;
    let Some(said) = said else {
        let every = fields
            .size("no_rope_layer_interval", MAX_LAYERS)?
            .unwrap_or(4);
        return Ok((1..=layers).map(|number| number % every != 0).collect());
    };
    // Models that were cut short keep the whole list.
    if said.len() < layers {
        let detail = format!("has {} entries, but there are {layers} layers", said.len());
        return Err(fields.wrong(name, detail));
    }
    Ok(said.into_iter().map(|number| number == 1).collect())
}
