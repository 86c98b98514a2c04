//! Llama 1 to 3 and everything stored under its name; the names that most families share.

use super::shared::{
    ATTENTION, BLOCK, BUFFERS, ENDS, FINAL_NORM, GATED_MLP, GGUF_BLOCK, GGUF_ENDS, GGUF_MLP,
    GGUF_NORMS, NORMS, QK_NORMS,
};
use super::{FamilySpec, GgufSpec};
use crate::config::{Fields, Keys, LLAMA as DEFAULTS, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, CheckpointError, Family, Place};

pub(super) const LLAMA: FamilySpec = FamilySpec {
    name: "llama",
    models: "Llama 1 to 3.3, Vicuna, TinyLlama, SmolLM 1 and 2, Yi, DeepSeek LLM",
    types: &[
        ("llama", "LlamaForCausalLM"),
        // As the first conversions called it.
        ("llama", "LLaMAForCausalLM"),
    ],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "llama",
        keys: &Keys::STANDARD,
        names: GGUF,
        constants: |_| {},
    }),
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let attention = fields.flag("attention_bias")?.unwrap_or(false);
    Ok(Architecture {
        biases: Biases {
            qkv: attention,
            output: attention,
            mlp: fields.flag("mlp_bias")?.unwrap_or(false),
            ..Biases::default()
        },
        ..rotary(fields, family, &DEFAULTS)?
    })
}

pub(super) const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[ENDS, FINAL_NORM, NORMS, ATTENTION, QK_NORMS, GATED_MLP],
};

const GGUF: NameTable = NameTable {
    block: GGUF_BLOCK,
    lists: &[
        GGUF_ENDS,
        GGUF_NORMS,
        GGUF_MLP,
        &[
            (Place::Query, "attn_q", Take::Pairs),
            (Place::Key, "attn_k", Take::Pairs),
            (Place::Value, "attn_v", Take::Whole),
            (Place::Output, "attn_output", Take::Whole),
        ],
    ],
};
