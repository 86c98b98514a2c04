//! Qwen 3, the mixtures of experts.

use super::FamilySpec;
use super::qwen3::with_head_norms;
use super::shared::{ATTENTION, BLOCK, BUFFERS, ENDS, FINAL_NORM, GATED_MLP, NORMS, QK_NORMS};
use crate::config::{
    Defaults, Fields, LLAMA, MAX_LAYERS, MAX_WIDTH, Width, every_block, experts, slide_all,
};
use crate::names::{NameTable, Take};
use crate::{Architecture, CheckpointError, Experts, Family, Place};

pub(super) const QWEN3_MOE: FamilySpec = FamilySpec {
    name: "qwen3_moe",
    models: "Qwen 3 30B-A3B and 235B-A22B",
    types: &[("qwen3_moe", "Qwen3MoeForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

const DEFAULTS: Defaults = Defaults {
    max_positions: 32_768,
    kv_heads: Width::Of(4),
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = with_head_norms(fields, family, &DEFAULTS)?;
    if fields.flag("use_sliding_window")?.unwrap_or(false) {
        slide_all(fields, &mut architecture, Some(4096))?;
    }
    // transformers 5 writes it under the other name.
    let count = ["num_experts", "num_local_experts"]
        .into_iter()
        .find(|name| fields.get(name).is_some())
        .unwrap_or("num_experts");
    architecture.experts = Some(Experts {
        intermediate_size: fields
            .size("moe_intermediate_size", MAX_WIDTH)?
            .unwrap_or(768),
        normalised: fields.flag("norm_topk_prob")?.unwrap_or(false),
        ..experts(fields, count, (128, 8))?
    });
    let step = fields.size("decoder_sparse_step", MAX_LAYERS)?.unwrap_or(1);
    let dense = fields.list("mlp_only_layers", "integers", serde_json::Value::as_u64)?;
    let dense = dense.unwrap_or_default();
    every_block(&mut architecture, |index, block| {
        block.experts = (index + 1) % step == 0 && !dense.contains(&(index as u64));
    });
    Ok(architecture)
}

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        FINAL_NORM,
        NORMS,
        ATTENTION,
        QK_NORMS,
        GATED_MLP,
        &[
            (Place::Router, "mlp.gate", Take::Whole),
            (
                Place::ExpertGate,
                "mlp.experts.{expert}.gate_proj",
                Take::Whole,
            ),
            (Place::ExpertUp, "mlp.experts.{expert}.up_proj", Take::Whole),
            (
                Place::ExpertDown,
                "mlp.experts.{expert}.down_proj",
                Take::Whole,
            ),
        ],
    ],
};
