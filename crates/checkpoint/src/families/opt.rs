//! OPT: learned positions, of which the first two rows are not used.

use super::FamilySpec;
use crate::config::{Defaults, Fields, Keys, LLAMA, MAX_WIDTH, common};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place};

pub(super) const OPT: FamilySpec = FamilySpec {
    name: "opt",
    models: "OPT, Galactica",
    types: &[("opt", "OPTForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: &[],
    other_parts: &[],
    gguf: None,
};

const KEYS: Keys = Keys {
    kv_heads: None,
    head_dim: None,
    intermediate_size: "ffn_dim",
    // The epsilon of its norms is not configured.
    norm_eps: None,
    activation: "activation_function",
    ..Keys::STANDARD
};

const DEFAULTS: Defaults = Defaults {
    keys: &KEYS,
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    activation: "relu",
    gated: false,
    tied_head: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let flag = |name: &str, default: bool| Ok(fields.flag(name)?.unwrap_or(default));
    let mut architecture = common(fields, family, &DEFAULTS)?;
    if !flag("layer_norm_elementwise_affine", true)? {
        let remedy = "only norms with weights are";
        return Err(fields.unsupported("layer_norm_elementwise_affine", "false", remedy));
    }
    let before = flag("do_layer_norm_before", true)?;
    architecture.form = if before {
        BlockForm::PreNorm
    } else {
        BlockForm::ResidualNorm
    };
    architecture.final_norm = before && !flag("_remove_final_layer_norm", false)?;
    let width = fields.size("word_embed_proj_dim", MAX_WIDTH)?;
    architecture.embedding_size = width.unwrap_or(architecture.hidden_size);
    let bias = flag("enable_bias", true)?;
    architecture.biases = Biases {
        qkv: bias,
        output: bias,
        mlp: bias,
        norm: true,
        ..Biases::default()
    };
    Ok(architecture)
}

/// Rows of the position embedding in front of that of position 0.
const OFFSET: usize = 2;

const NAMES: NameTable = NameTable {
    block: "model.decoder.layers.{layer}.",
    lists: &[&[
        (Place::Embedding, "model.decoder.embed_tokens", Take::Whole),
        (
            Place::Positions,
            "model.decoder.embed_positions",
            Take::Below(OFFSET),
        ),
        (Place::ProjectIn, "model.decoder.project_in", Take::Whole),
        (Place::AttentionNorm, "self_attn_layer_norm", Take::Whole),
        (
            Place::AttentionPostNorm,
            "self_attn_layer_norm",
            Take::Whole,
        ),
        (Place::Query, "self_attn.q_proj", Take::Whole),
        (Place::Key, "self_attn.k_proj", Take::Whole),
        (Place::Value, "self_attn.v_proj", Take::Whole),
        (Place::Output, "self_attn.out_proj", Take::Whole),
        (Place::MlpNorm, "final_layer_norm", Take::Whole),
        (Place::MlpPostNorm, "final_layer_norm", Take::Whole),
        (Place::Up, "fc1", Take::Whole),
        (Place::Down, "fc2", Take::Whole),
        (
            Place::FinalNorm,
            "model.decoder.final_layer_norm",
            Take::Whole,
        ),
        (Place::ProjectOut, "model.decoder.project_out", Take::Whole),
        (Place::Head, "lm_head", Take::Whole),
    ]],
};
