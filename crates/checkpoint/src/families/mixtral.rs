//! Mixtral.

use super::FamilySpec;
use super::shared::{ATTENTION, BLOCK, BUFFERS, ENDS, FINAL_NORM, NORMS};
use crate::config::{Defaults, Fields, LLAMA, Width, every_block, experts, rotary, slide_all};
use crate::names::{NameTable, Take};
use crate::{Architecture, CheckpointError, Experts, Family, Place};

pub(super) const MIXTRAL: FamilySpec = FamilySpec {
    name: "mixtral",
    models: "Mixtral 8x7B and 8x22B",
    types: &[("mixtral", "MixtralForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 131_072,
    kv_heads: Width::Of(8),
    norm_eps: 1e-5,
    rope_theta: 1e6,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    slide_all(fields, &mut architecture, None)?;
    architecture.experts = Some(Experts {
        intermediate_size: architecture.intermediate_size,
        ..experts(fields, "num_local_experts", (8, 2))?
    });
    every_block(&mut architecture, |_, block| block.experts = true);
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
            (Place::Router, "block_sparse_moe.gate", Take::Whole),
            (
                Place::ExpertGate,
                "block_sparse_moe.experts.{expert}.w1",
                Take::Whole,
            ),
            (
                Place::ExpertUp,
                "block_sparse_moe.experts.{expert}.w3",
                Take::Whole,
            ),
            (
                Place::ExpertDown,
                "block_sparse_moe.experts.{expert}.w2",
                Take::Whole,
            ),
        ],
    ],
};
