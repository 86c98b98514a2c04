//! Phi 3, 3.5 and 4: query, key and value in one tensor, gate and up in another.

use super::shared::{BLOCK, BUFFERS, ENDS, FINAL_NORM, GGUF_BLOCK, GGUF_ENDS, GGUF_NORMS, NORMS};
use super::{FamilySpec, GgufSpec};
use crate::config::{Defaults, Fields, Keys, LLAMA, Original, rotary, slide_all};
use crate::names::{NameTable, Take};
use crate::{Architecture, CheckpointError, Family, Place};

pub(super) const PHI3: FamilySpec = FamilySpec {
    name: "phi3",
    models: "Phi 3, 3.5 and 4 (mini, medium, Phi 4 14B)",
    types: &[("phi3", "Phi3ForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "phi3",
        keys: &Keys::STANDARD,
        names: GGUF,
        constants: |_| {},
    }),
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 4096,
    norm_eps: 1e-5,
    partial_rotary: true,
    original: Original::Beside(4096),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    slide_all(fields, &mut architecture, None)?;
    Ok(architecture)
}

const QKV: Take = Take::Stacked(&[Place::Query, Place::Key, Place::Value]);
const GATE_UP: Take = Take::Stacked(&[Place::Gate, Place::Up]);

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        FINAL_NORM,
        NORMS,
        &[
            (Place::Query, "self_attn.qkv_proj", QKV),
            (Place::Key, "self_attn.qkv_proj", QKV),
            (Place::Value, "self_attn.qkv_proj", QKV),
            (Place::Output, "self_attn.o_proj", Take::Whole),
            (Place::Gate, "mlp.gate_up_proj", GATE_UP),
            (Place::Up, "mlp.gate_up_proj", GATE_UP),
            (Place::Down, "mlp.down_proj", Take::Whole),
        ],
    ],
};

const GGUF: NameTable = NameTable {
    block: GGUF_BLOCK,
    lists: &[
        GGUF_ENDS,
        GGUF_NORMS,
        &[
            (Place::Query, "attn_qkv", QKV),
            (Place::Key, "attn_qkv", QKV),
            (Place::Value, "attn_qkv", QKV),
            (Place::Output, "attn_output", Take::Whole),
            (Place::Gate, "ffn_up", GATE_UP),
            (Place::Up, "ffn_up", GATE_UP),
            (Place::Down, "ffn_down", Take::Whole),
        ],
    ],
};
