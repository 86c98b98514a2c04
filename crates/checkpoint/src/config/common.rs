//! The part of a configuration that most families have in common.

use super::{Fields, MAX_EXPERTS, MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, Original, RopePlace, rope};
use crate::{
    Activation, Architecture, Biases, Block, BlockForm, CheckpointError, Experts, Family, NormKind,
    Positions, Scales, Softcaps,
};

/// What a family calls the fields that all families have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    pub(crate) hidden_size: &'static str,
    pub(crate) intermediate_size: &'static str,
    pub(crate) layers: &'static str,
    pub(crate) heads: &'static str,
    /// None where each query head has its own key.
    pub(crate) kv_heads: Option<&'static str>,
    /// None where it follows from the hidden size.
    pub(crate) head_dim: Option<&'static str>,
    pub(crate) max_positions: &'static str,
    pub(crate) norm_eps: Option<&'static str>,
    pub(crate) activation: &'static str,
    pub(crate) rope_theta: &'static str,
    pub(crate) rotary_part: &'static str,
}

impl Keys {
    /// The names of most families.
    pub(crate) const STANDARD: Self = Self {
        hidden_size: "hidden_size",
        intermediate_size: "intermediate_size",
        layers: "num_hidden_layers",
        heads: "num_attention_heads",
        kv_heads: Some("num_key_value_heads"),
        head_dim: Some("head_dim"),
        max_positions: "max_position_embeddings",
        norm_eps: Some("rms_norm_eps"),
        activation: "hidden_act",
        rope_theta: "rope_theta",
        rotary_part: "partial_rotary_factor",
    };

    /// Those of most families with layer norms.
    pub(crate) const LAYER_NORM: Self = Self {
        norm_eps: Some("layer_norm_eps"),
        ..Self::STANDARD
    };
}

/// What a size is where the configuration leaves it out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    /// It must not be left out.
    Required,
    /// What follows from other sizes: key heads from query heads, a head's width from the hidden
    /// size and the heads, the MLP's width as four times the hidden size.
    Derived,
    /// A number.
    Of(usize),
}

/// What holds for a family where its configuration says nothing: the values of its configuration
/// class in transformers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) keys: &'static Keys,
    pub(crate) max_positions: usize,
    pub(crate) vocab_size: Width,
    pub(crate) intermediate_size: Width,
    pub(crate) heads: Width,
    pub(crate) kv_heads: Width,
    pub(crate) head_dim: Width,
    pub(crate) form: BlockForm,
    pub(crate) norm: NormKind,
    pub(crate) norm_eps: f64,
    pub(crate) activation: &'static str,
    pub(crate) gated: bool,
    pub(crate) tied_head: bool,
    pub(crate) rope_theta: f64,
    /// The share of a head that is rotated.
    pub(crate) rotary_part: f64,
    /// Whether a configuration may say another share.
    pub(crate) partial_rotary: bool,
    pub(crate) original: Original,
}

/// Those of Llama, which most later families share for the most part.
pub(crate) const LLAMA: Defaults = Defaults {
    keys: &Keys::STANDARD,
    max_positions: 2048,
    vocab_size: Width::Required,
    intermediate_size: Width::Required,
    heads: Width::Required,
    kv_heads: Width::Derived,
    head_dim: Width::Derived,
    form: BlockForm::PreNorm,
    norm: NormKind::Rms,
    norm_eps: 1e-6,
    activation: "silu",
    gated: true,
    tied_head: false,
    rope_theta: 10_000.0,
    rotary_part: 1.0,
    partial_rotary: false,
    original: Original::Anywhere,
};

/// The architecture that the common fields describe: rotary positions in every block, causal
/// attention over all of a window, no biases, no multipliers.
pub(crate) fn common(
    fields: &Fields,
    family: Family,
    defaults: &Defaults,
) -> Result<Architecture, CheckpointError> {
    let keys = defaults.keys;
    let hidden_size = fields.required_size(keys.hidden_size, MAX_WIDTH)?;
    let layers = fields.required_size(keys.layers, MAX_LAYERS)?;
    let width = |key: Option<&str>, default: Width, derived: usize| {
        let said = match key {
            Some(key) => fields.size(key, MAX_WIDTH)?,
            None => None,
        };
        let is_null = key.is_some_and(|key| fields.names(key));
        match (said, default) {
            (Some(size), _) => Ok(size),
            (None, Width::Of(size)) if !is_null => Ok(size),
            (None, Width::Of(_) | Width::Derived) if derived > 0 => Ok(derived),
            _ => Err(fields.wrong(key.unwrap_or(keys.hidden_size), "is missing")),
        }
    };
    let heads = width(Some(keys.heads), defaults.heads, 0)?;
    if hidden_size < heads && keys.head_dim.is_none() {
        let detail = format!("is {hidden_size}, less than the {heads} attention heads");
        return Err(fields.wrong(keys.hidden_size, detail));
    }
    let kv_heads = width(keys.kv_heads, defaults.kv_heads, heads)?;
    let head_dim = width(keys.head_dim, defaults.head_dim, hidden_size / heads)?;
    if heads % kv_heads != 0 {
        let detail = format!("is {kv_heads}, which does not divide the {heads} attention heads");
        return Err(fields.wrong(keys.kv_heads.unwrap_or(keys.heads), detail));
    }
    let block = Block {
        rope: None,
        window: None,
        attention_scale: (head_dim as f64).sqrt().recip(),
        experts: false,
    };
    Ok(Architecture {
        family,
        hidden_size,
        embedding_size: hidden_size,
        intermediate_size: width(
            Some(keys.intermediate_size),
            defaults.intermediate_size,
            4 * hidden_size,
        )?,
        heads,
        kv_heads,
        head_dim,
        vocab_size: width(Some("vocab_size"), defaults.vocab_size, 0)?,
        max_positions: fields
            .size(keys.max_positions, MAX_POSITIONS)?
            .unwrap_or(defaults.max_positions),
        positions: Positions::Learned,
        blocks: vec![block; layers],
        form: defaults.form,
        norm: defaults.norm,
        norm_eps: match keys.norm_eps {
            Some(key) => fields.positive(key)?.unwrap_or(defaults.norm_eps),
            None => defaults.norm_eps,
        },
        final_norm: true,
        qk_norm: None,
        biases: Biases::default(),
        activation: activation(fields, keys.activation, defaults.activation)?,
        gated: defaults.gated,
        experts: None,
        scales: Scales::NONE,
        softcaps: Softcaps::default(),
        tied_head: fields
            .flag("tie_word_embeddings")?
            .unwrap_or(defaults.tied_head),
    })
}

/// [`common`], with the rotary embedding that the fields describe in every block.
pub(crate) fn rotary(
    fields: &Fields,
    family: Family,
    defaults: &Defaults,
) -> Result<Architecture, CheckpointError> {
    let mut architecture = common(fields, family, defaults)?;
    let keys = defaults.keys;
    // As transformers 5: a `rope_scaling` that says something wins over `rope_parameters`.
    let scaling = match fields.object("rope_scaling")? {
        Some(scaling) if !scaling.map.is_empty() => Some(scaling),
        _ => fields.object("rope_parameters")?,
    };
    let only = rope(&RopePlace {
        scaling,
        around: fields,
        theta: fields
            .positive(keys.rope_theta)?
            .unwrap_or(defaults.rope_theta),
        part: fields
            .positive(keys.rotary_part)?
            .unwrap_or(defaults.rotary_part),
        partial: defaults.partial_rotary,
        head_dim: architecture.head_dim,
        head_field: keys.head_dim.unwrap_or(keys.hidden_size),
        max_positions: architecture.max_positions,
        original: defaults.original,
    })?;
    architecture.positions = Positions::Rotary(vec![only]);
    every_block(&mut architecture, |_, block| block.rope = Some(0));
    Ok(architecture)
}

/// Changes every block; the first argument is its index.
pub(crate) fn every_block(architecture: &mut Architecture, change: impl Fn(usize, &mut Block)) {
    for (index, block) in architecture.blocks.iter_mut().enumerate() {
        change(index, block);
    }
}

/// Which blocks attend to a sliding window, by `layer_types` if it is there.
pub(crate) fn layer_types(
    fields: &Fields,
    layers: usize,
) -> Result<Option<Vec<bool>>, CheckpointError> {
    let name = "layer_types";
    let Some(kinds) = fields.list(name, "strings", serde_json::Value::as_str)? else {
        return Ok(None);
    };
    if kinds.len() != layers {
        let detail = format!("has {} entries, but there are {layers} layers", kinds.len());
        return Err(fields.wrong(name, detail));
    }
    let sliding = kinds.into_iter().map(|kind| match kind {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        other => {
            let remedy = "full_attention and sliding_attention are";
            Err(fields.unsupported(name, other, remedy))
        }
    });
    sliding.collect::<Result<_, _>>().map(Some)
}

/// The tokens of `sliding_window`; `default` is what holds without the field, and null is none.
pub(crate) fn window(
    fields: &Fields,
    default: Option<usize>,
) -> Result<Option<usize>, CheckpointError> {
    let name = "sliding_window";
    let said = fields.size(name, MAX_POSITIONS)?;
    Ok(said.or(default.filter(|_| !fields.names(name))))
}

/// Gives all blocks the [`window`].
pub(crate) fn slide_all(
    fields: &Fields,
    architecture: &mut Architecture,
    default: Option<usize>,
) -> Result<(), CheckpointError> {
    let window = window(fields, default)?;
    every_block(architecture, |_, block| block.window = window);
    Ok(())
}

/// A mixture of experts by the number of them in the field `count` and of those that compute a
/// token, and by what holds where these are left out.
pub(crate) fn experts(
    fields: &Fields,
    count: &str,
    (all, per_token): (usize, usize),
) -> Result<Experts, CheckpointError> {
    let count = fields.size(count, MAX_EXPERTS)?.unwrap_or(all);
    let name = "num_experts_per_tok";
    let per_token = fields.size(name, MAX_EXPERTS)?.unwrap_or(per_token);
    if per_token > count {
        let detail = format!("is {per_token}, but there are {count} experts");
        return Err(fields.wrong(name, detail));
    }
    Ok(Experts {
        count,
        per_token,
        intermediate_size: 0,
        normalised: true,
    })
}

/// The activation that a field names.
fn activation(
    fields: &Fields,
    key: &str,
    default: &'static str,
) -> Result<Activation, CheckpointError> {
    let name = fields.text(key)?.unwrap_or(default);
    match name {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_accurate" => {
            Ok(Activation::GeluTanh)
        }
        "relu" => Ok(Activation::Relu),
        other => {
            let remedy = "silu, gelu, gelu_new, gelu_pytorch_tanh and relu are";
            Err(fields.unsupported(key, other, remedy))
        }
    }
}
