//! StarCoder 2.

use super::FamilySpec;
use super::shared::{ATTENTION, BLOCK, BUFFERS, ENDS, FINAL_NORM, NORMS};
use crate::config::{Defaults, Fields, Keys, LLAMA, Width, rotary, slide_all};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, CheckpointError, Family, NormKind, Place};

pub(super) const STARCODER2: FamilySpec = FamilySpec {
    name: "starcoder2",
    models: "StarCoder 2",
    types: &[("starcoder2", "Starcoder2ForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const KEYS: Keys = Keys {
    norm_eps: Some("norm_epsilon"),
    ..Keys::STANDARD
};

const DEFAULTS: Defaults = Defaults {
    keys: &KEYS,
    max_positions: 4096,
    kv_heads: Width::Of(2),
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    activation: "gelu_pytorch_tanh",
    gated: false,
    tied_head: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    slide_all(fields, &mut architecture, None)?;
    let bias = fields.flag("use_bias")?.unwrap_or(true);
    architecture.biases = Biases {
        qkv: bias,
        output: bias,
        mlp: bias,
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
        &[
            (Place::Up, "mlp.c_fc", Take::Whole),
            (Place::Down, "mlp.c_proj", Take::Whole),
        ],
    ],
};
