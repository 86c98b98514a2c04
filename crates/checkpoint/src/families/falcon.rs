//! Falcon: the decoder of Falcon 7B and RW, and the newer one of Falcon 40B, 180B and 2.

use super::FamilySpec;
use crate::config::{Defaults, Fields, Keys, LLAMA, MAX_WIDTH, Width, common, rotary};
use crate::names::{NameTable, Take};
use crate::{Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place, Positions};

pub(super) const FALCON: FamilySpec = FamilySpec {
    name: "falcon",
    models: "Falcon 7B, 40B, 180B, RW, Falcon 2 11B",
    types: &[("falcon", "FalconForCausalLM")],
    configure,
    safetensors: NAMES,
    buffers: &["rotary_emb.inv_freq"],
    other_parts: &[],
    gguf: None,
};

const KEYS: Keys = Keys {
    intermediate_size: "ffn_hidden_size",
    kv_heads: Some("num_kv_heads"),
    head_dim: None,
    norm_eps: Some("layer_norm_epsilon"),
    activation: "activation",
    ..Keys::STANDARD
};

const DEFAULTS: Defaults = Defaults {
    keys: &KEYS,
    intermediate_size: Width::Derived,
    norm: NormKind::Layer,
    norm_eps: 1e-5,
    activation: "gelu",
    gated: false,
    tied_head: true,
    ..LLAMA
};

fn configure(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    // null is false here, and not what holds without the field.
    let flag = |name: &str, default: bool| {
        let default = default && !fields.names(name);
        Ok(fields.flag(name)?.unwrap_or(default))
    };
    let alibi = flag("alibi", false)?;
    let mut architecture = if alibi {
        common(fields, family, &DEFAULTS)?
    } else {
        rotary(fields, family, &DEFAULTS)?
    };
    if alibi {
        architecture.positions = Positions::Alibi;
    }
    let newer = flag("new_decoder_architecture", false)?;
    let parallel = flag("parallel_attn", true)?;
    if newer && !parallel {
        let remedy = "the newer decoder computes attention and MLP side by side";
        return Err(fields.unsupported("parallel_attn", "false", remedy));
    }
    let norms = fields.size("num_ln_in_parallel_attn", MAX_WIDTH)?;
    architecture.form = match (parallel, newer, norms) {
        (false, ..) => BlockForm::PreNorm,
        (true, true, None | Some(2)) => BlockForm::Parallel,
        (true, true, Some(1)) | (true, false, None | Some(1)) => BlockForm::ParallelShared,
        (true, _, Some(other)) => {
            let name = "num_ln_in_parallel_attn";
            return Err(fields.unsupported(name, other.to_string(), "1, or 2 in newer ones, are"));
        }
    };
    if !newer {
        let one = flag("multi_query", true)?;
        architecture.kv_heads = if one { 1 } else { architecture.heads };
    }
    let bias = flag("bias", false)?;
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
    block: "transformer.h.{layer}.",
    lists: &[&[
        (Place::Embedding, "transformer.word_embeddings", Take::Whole),
        (Place::AttentionNorm, "input_layernorm", Take::Whole),
        (Place::AttentionNorm, "ln_attn", Take::Whole),
        (
            Place::Query,
            "self_attention.query_key_value",
            Take::Grouped,
        ),
        (Place::Key, "self_attention.query_key_value", Take::Grouped),
        (
            Place::Value,
            "self_attention.query_key_value",
            Take::Grouped,
        ),
        (Place::Output, "self_attention.dense", Take::Whole),
        (Place::MlpNorm, "post_attention_layernorm", Take::Whole),
        (Place::MlpNorm, "ln_mlp", Take::Whole),
        (Place::Up, "mlp.dense_h_to_4h", Take::Whole),
        (Place::Down, "mlp.dense_4h_to_h", Take::Whole),
        (Place::FinalNorm, "transformer.ln_f", Take::Whole),
        (Place::Head, "lm_head", Take::Whole),
    ]],
};
