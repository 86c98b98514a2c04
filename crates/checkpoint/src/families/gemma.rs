//! Gemma 1 to 3. Their norms store the weight less 1.

use serde_json::{Map, Value, json};

use super::shared::{
    ATTENTION, BLOCK, BUFFERS, ENDS, GATED_MLP, GGUF_ATTENTION, GGUF_BLOCK, GGUF_ENDS, GGUF_MLP,
    GGUF_NORMS, GGUF_QK_NORMS,
};
use super::{FamilySpec, GgufSpec};
use crate::config::{
    Defaults, Fields, Keys, LLAMA, MAX_LAYERS, Original, RopePlace, Width, common, every_block,
    layer_types, rope, rotary, window,
};
use crate::names::{NameTable, Take};
use crate::{
    Activation, Architecture, Biases, BlockForm, CheckpointError, Family, NormKind, Place,
    Positions, QkNorm, Scales, Softcaps,
};

pub(super) const GEMMA: FamilySpec = FamilySpec {
    name: "gemma",
    models: "Gemma 1, CodeGemma",
    types: &[("gemma", "GemmaForCausalLM")],
    configure: first,
    safetensors: FIRST_NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: None,
};

pub(super) const GEMMA2: FamilySpec = FamilySpec {
    name: "gemma2",
    models: "Gemma 2",
    types: &[("gemma2", "Gemma2ForCausalLM")],
    configure: second,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &[],
    gguf: Some(&GgufSpec {
        architecture: "gemma2",
        keys: &ACTIVATION_KEYS,
        names: GGUF,
        constants: |fields| query_scalar(fields, 46),
    }),
};

pub(super) const GEMMA3: FamilySpec = FamilySpec {
    name: "gemma3",
    models: "Gemma 3, the text of it",
    types: &[
        ("gemma3_text", "Gemma3ForCausalLM"),
        ("gemma3", "Gemma3ForConditionalGeneration"),
    ],
    configure: third,
    safetensors: NAMES,
    buffers: BUFFERS,
    other_parts: &["vision_tower.", "multi_modal_projector."],
    gguf: Some(&GgufSpec {
        architecture: "gemma3",
        keys: &ACTIVATION_KEYS,
        names: GGUF,
        constants: |fields| {
            query_scalar(fields, 62);
            let constants = [
                ("rope_local_base_freq", json!(10_000.0)),
                ("sliding_window_pattern", json!(PATTERN)),
            ];
            for (name, value) in constants {
                let field = fields.entry(name).or_insert(Value::Null);
                if field.is_null() {
                    *field = value;
                }
            }
        },
    }),
};

const ACTIVATION_KEYS: Keys = Keys {
    activation: "hidden_activation",
    ..Keys::STANDARD
};

/// One block in so many attends to all of a window in Gemma 3.
const PATTERN: usize = 6;

const DEFAULTS: Defaults = Defaults {
    max_positions: 8192,
    kv_heads: Width::Of(16),
    head_dim: Width::Of(256),
    norm: NormKind::RmsFloat,
    activation: "gelu_pytorch_tanh",
    tied_head: true,
    ..LLAMA
};

const SANDWICH: Defaults = Defaults {
    keys: &ACTIVATION_KEYS,
    kv_heads: Width::Of(4),
    form: BlockForm::Sandwich,
    ..DEFAULTS
};

/// The models of text and images leave all of these out.
const THIRD: Defaults = Defaults {
    max_positions: 131_072,
    vocab_size: Width::Of(262_208),
    heads: Width::Of(8),
    ..SANDWICH
};

/// llama.cpp takes the width of a head for `query_pre_attn_scalar`, and in the model of `largest`
/// blocks the hidden size by the heads.
fn query_scalar(fields: &mut Map<String, Value>, largest: u64) {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let (hidden, heads) = (number("hidden_size"), number("num_attention_heads"));
    let derived = hidden.zip(heads).filter(|(_, heads)| *heads > 0);
    let derived = derived.map(|(hidden, heads)| hidden / heads);
    let scalar = if number("num_hidden_layers") == Some(largest) {
        derived
    } else {
        number("head_dim").or(derived)
    };
    if let Some(scalar) = scalar {
        fields.insert("query_pre_attn_scalar".to_owned(), json!(scalar));
    }
}

fn first(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &DEFAULTS)?;
    all(fields, &mut architecture)?;
    // What the first checkpoints call `gelu` is meant to be its approximation.
    if fields.text("hidden_act")? == Some("gelu") {
        architecture.activation = Activation::GeluTanh;
    }
    Ok(architecture)
}

fn second(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = rotary(fields, family, &SANDWICH)?;
    all(fields, &mut architecture)?;
    let softcap = |name: &str, default: f64| match fields.positive(name)? {
        None if !fields.names(name) => Ok(Some(default)),
        cap => Ok(cap),
    };
    architecture.softcaps = Softcaps {
        attention: softcap("attn_logit_softcapping", 50.0)?,
        logits: softcap("final_logit_softcapping", 30.0)?,
    };
    let kinds = layer_types(fields, architecture.blocks.len())?;
    scale_and_slide(fields, &mut architecture, |index| {
        kinds
            .as_ref()
            .map_or(index.is_multiple_of(2), |kinds| kinds[index])
    })?;
    Ok(architecture)
}

fn third(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let mut architecture = common(fields, family, &THIRD)?;
    all(fields, &mut architecture)?;
    architecture.qk_norm = Some(QkNorm::Head);
    // transformers gives a cap of the scores to no kernel of this generation, and in the models of
    // text and images none of the logits to the head.
    if fields.within.is_empty() {
        architecture.softcaps.logits = fields.positive("final_logit_softcapping")?;
    }
    let kinds = layer_types(fields, architecture.blocks.len())?;
    let pattern = fields.size("sliding_window_pattern", MAX_LAYERS)?;
    let pattern = pattern.unwrap_or(PATTERN);
    let slides = |index: usize| {
        kinds
            .as_ref()
            .map_or(!(index + 1).is_multiple_of(pattern), |kinds| kinds[index])
    };
    architecture.positions = Positions::Rotary(ropes(fields, &architecture)?);
    every_block(&mut architecture, |index, block| {
        block.rope = Some(usize::from(slides(index)));
    });
    scale_and_slide(fields, &mut architecture, slides)?;
    Ok(architecture)
}

/// What all generations have.
fn all(fields: &Fields, architecture: &mut Architecture) -> Result<(), CheckpointError> {
    let remedy = "only causal attention is";
    fields.refuse("use_bidirectional_attention", remedy)?;
    let bias = fields.flag("attention_bias")?.unwrap_or(false);
    architecture.biases = Biases {
        qkv: bias,
        output: bias,
        ..Biases::default()
    };
    architecture.scales = Scales {
        embedding: (architecture.hidden_size as f64).sqrt(),
        rounds_embedding: true,
        ..Scales::NONE
    };
    Ok(())
}

fn scale_and_slide(
    fields: &Fields,
    architecture: &mut Architecture,
    slides: impl Fn(usize) -> bool,
) -> Result<(), CheckpointError> {
    let scalar = fields.positive("query_pre_attn_scalar")?.unwrap_or(256.0);
    let window = window(fields, Some(4096))?;
    every_block(architecture, |index, block| {
        block.attention_scale = scalar.sqrt().recip();
        block.window = window.filter(|_| slides(index));
    });
    Ok(())
}

/// The rotary embedding of the blocks that attend to all of a window, and that of the others.
/// transformers 5 writes one set of parameters for each kind, earlier versions a base for each and
/// a scaling for the former.
fn ropes(
    fields: &Fields,
    architecture: &Architecture,
) -> Result<Vec<crate::Rope>, CheckpointError> {
    let nested = fields.object("rope_parameters")?;
    let of_kind = |kind: &str| match &nested {
        Some(nested) => nested.object(kind),
        None => Ok(None),
    };
    let place = |scaling, theta_key: &str, theta: f64| {
        rope(&RopePlace {
            scaling,
            around: fields,
            theta: fields.positive(theta_key)?.unwrap_or(theta),
            part: 1.0,
            partial: false,
            head_dim: architecture.head_dim,
            head_field: "head_dim",
            max_positions: architecture.max_positions,
            original: Original::Within,
        })
    };
    let full = of_kind("full_attention")?;
    let theta = match &full {
        Some(full) => full.positive("rope_theta")?,
        None => None,
    };
    let scaling = match fields.object("rope_scaling")? {
        None => full,
        scaling => scaling,
    };
    Ok(vec![
        place(scaling, "rope_theta", theta.unwrap_or(1e6))?,
        place(of_kind("sliding_attention")?, "rope_local_base_freq", 1e4)?,
    ])
}

const FIRST_NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        ATTENTION,
        GATED_MLP,
        &[
            (Place::AttentionNorm, "input_layernorm", Take::MinusOne),
            (Place::MlpNorm, "post_attention_layernorm", Take::MinusOne),
            (Place::FinalNorm, "model.norm", Take::MinusOne),
        ],
    ],
};

const NAMES: NameTable = NameTable {
    block: BLOCK,
    lists: &[
        ENDS,
        ATTENTION,
        GATED_MLP,
        &[
            (Place::AttentionNorm, "input_layernorm", Take::MinusOne),
            (Place::QueryNorm, "self_attn.q_norm", Take::MinusOne),
            (Place::KeyNorm, "self_attn.k_norm", Take::MinusOne),
            (
                Place::AttentionPostNorm,
                "post_attention_layernorm",
                Take::MinusOne,
            ),
            (Place::MlpNorm, "pre_feedforward_layernorm", Take::MinusOne),
            (
                Place::MlpPostNorm,
                "post_feedforward_layernorm",
                Take::MinusOne,
            ),
            (Place::FinalNorm, "model.norm", Take::MinusOne),
        ],
    ],
};

const GGUF: NameTable = NameTable {
    block: GGUF_BLOCK,
    lists: &[
        GGUF_ENDS,
        GGUF_NORMS,
        GGUF_ATTENTION,
        GGUF_QK_NORMS,
        GGUF_MLP,
        &[
            (Place::AttentionPostNorm, "post_attention_norm", Take::Whole),
            (Place::MlpPostNorm, "post_ffw_norm", Take::Whole),
        ],
    ],
};
