//! The architecture from the metadata of a GGUF file: as the fields of a config.json, which the
//! family reads.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::keys::Keys;
use super::{ROPE_DIVISORS, ROPE_LONG, ROPE_SHORT};
use crate::config::{Fields, Keys as Names};
use crate::families::{Family, GgufSpec};
use crate::names::{NameTable, tensor_of};
use crate::tensor::{Format, StoredTensor, Tensors, WeightDtype};
use crate::{Architecture, CheckpointError, Place, Positions, RopeScaling, Slot};

/// Tensors that scale the rotary frequencies, as far as the file has them.
#[derive(Debug, Default)]
pub(super) struct RopeTensors {
    /// For all windows.
    pub(super) all: Option<StoredTensor>,
    /// For short and for long windows.
    pub(super) by_length: Option<(StoredTensor, StoredTensor)>,
}

impl RopeTensors {
    /// Those among a file's tensors. One of a pair is none, and stays without a place.
    pub(super) fn of(tensors: &Tensors) -> Self {
        let tensor = |name: &str| tensors.by_name.get(name).cloned();
        Self {
            all: tensor(ROPE_DIVISORS),
            by_length: tensor(ROPE_SHORT).zip(tensor(ROPE_LONG)),
        }
    }

    /// The names of those that are used.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let all = self.all.is_some().then_some(ROPE_DIVISORS);
        let pair = self.by_length.is_some().then_some([ROPE_SHORT, ROPE_LONG]);
        all.into_iter().chain(pair.into_iter().flatten())
    }
}

/// What a metadata value must be.
enum Kind {
    Size,
    Number,
}

type Name = fn(&Names) -> Option<&'static str>;

/// Fields of config.json and the keys that mean the same.
const FIELDS: [(Name, &str, Kind); 13] = [
    (
        |names| Some(names.hidden_size),
        "embedding_length",
        Kind::Size,
    ),
    (
        |names| Some(names.intermediate_size),
        "feed_forward_length",
        Kind::Size,
    ),
    (|names| Some(names.layers), "block_count", Kind::Size),
    (
        |names| Some(names.heads),
        "attention.head_count",
        Kind::Size,
    ),
    (
        |names| names.kv_heads,
        "attention.head_count_kv",
        Kind::Size,
    ),
    (|names| names.head_dim, "attention.key_length", Kind::Size),
    (
        |names| Some(names.max_positions),
        "context_length",
        Kind::Size,
    ),
    (
        |_| Some("sliding_window"),
        "attention.sliding_window",
        Kind::Size,
    ),
    (
        |_| Some("sliding_window_pattern"),
        "attention.sliding_window_pattern",
        Kind::Size,
    ),
    (
        |_| Some("rope_local_base_freq"),
        "rope.freq_base_swa",
        Kind::Number,
    ),
    (
        |_| Some("attn_logit_softcapping"),
        "attn_logit_softcapping",
        Kind::Number,
    ),
    (
        |_| Some("final_logit_softcapping"),
        "final_logit_softcapping",
        Kind::Number,
    ),
    (
        |names| Some(names.rope_theta),
        "rope.freq_base",
        Kind::Number,
    ),
];

/// The architecture; what the metadata leaves open follows from the tensors.
pub(super) fn architecture(
    keys: &Keys,
    tensors: &Tensors,
    rope: &RopeTensors,
) -> Result<(Architecture, NameTable), CheckpointError> {
    let (family, spec) = family(keys)?;
    let key = |name: &str| format!("{}.{name}", spec.architecture);
    refuse_unsupported(keys, &key)?;
    let has = |place: Place, bias: bool| {
        let slot = Slot::block(0, place);
        let slot = if bias { slot.bias() } else { slot };
        let mut patterns = spec.names.of(place);
        patterns.any(|(pattern, _)| tensors.by_name.contains_key(&tensor_of(&pattern, slot)))
    };

    let mut map = Map::new();
    let mut alias = BTreeMap::new();
    for (name, gguf, kind) in FIELDS {
        let Some(name) = name(spec.keys) else {
            continue;
        };
        alias.insert(name.to_owned(), key(gguf));
        let value = match kind {
            Kind::Size => keys.integer(&key(gguf))?.map(integer),
            Kind::Number => keys.positive(&key(gguf))?.map(|number| json!(number)),
        };
        // Converters write 0 for a window that is not there.
        let value = value.filter(|value| name != "sliding_window" || *value != json!(0));
        map.insert(name.to_owned(), value.unwrap_or(Value::Null));
    }
    let positions = key("context_length");
    if keys.integer(&positions)?.is_none() {
        return Err(keys.missing(&positions));
    }
    if map[spec.keys.rope_theta].is_null() {
        map.insert(spec.keys.rope_theta.to_owned(), json!(10_000.0));
    }
    let epsilons = [
        "attention.layer_norm_rms_epsilon",
        "attention.layer_norm_epsilon",
    ];
    let eps = epsilons.iter().find_map(|name| {
        let number = keys.positive(&key(name)).transpose()?;
        Some(number.map(|number| (key(name), number)))
    });
    let (eps_key, eps) = eps
        .transpose()?
        .ok_or_else(|| keys.missing(&key(epsilons[0])))?;
    if let Some(name) = spec.keys.norm_eps {
        alias.insert(name.to_owned(), eps_key);
        map.insert(name.to_owned(), json!(eps));
    }
    // The embedding has the last word: the key is absent from older files.
    let embedding = spec
        .names
        .of(Place::Embedding)
        .find_map(|(pattern, _)| {
            let name = tensor_of(&pattern, Slot::model(Place::Embedding));
            tensors.by_name.get(&name)
        })
        .and_then(|tensor| tensor.shape.first().copied());
    // Without one, binding says what is wrong with it.
    map.insert("vocab_size".to_owned(), json!(embedding.unwrap_or(1)));
    map.insert(
        "tie_word_embeddings".to_owned(),
        json!(!has(Place::Head, false)),
    );
    map.insert("attention_bias".to_owned(), json!(has(Place::Query, true)));
    (spec.constants)(&mut map);
    partial_rotary(keys, &key, (&mut map, &mut alias), spec)?;
    scaling(keys, &key, &mut map, rope)?;

    let fields = Fields {
        file: keys.file,
        within: String::new(),
        map: &map,
        alias: &alias,
    };
    let mut architecture = family.configure(&fields)?;
    // What goes by one flag in config.json may be there in part.
    architecture.biases.output &= has(Place::Output, true);
    let value_width = keys.integer(&key("attention.value_length"))?;
    if let Some(width) = value_width
        && width != architecture.head_dim as i128
    {
        let remedy = format!("it must be the width of a head, {}", architecture.head_dim);
        let name = key("attention.value_length");
        return Err(CheckpointError::unsupported(
            keys.file,
            &name,
            width.to_string(),
            remedy,
        ));
    }
    set_divisors(keys, &mut architecture, rope)?;
    Ok((architecture, spec.names))
}

fn integer(number: i128) -> Value {
    i64::try_from(number).map_or(Value::Null, |number| json!(number))
}

fn family(keys: &Keys) -> Result<(Family, &'static GgufSpec), CheckpointError> {
    let wanted = keys.text("general.architecture")?.unwrap_or("(none named)");
    let known = || Family::all().filter_map(|family| Some((family, family.spec().gguf?)));
    let found = known().find(|(_, spec)| spec.architecture == wanted);
    found.ok_or_else(|| CheckpointError::UnknownArchitecture {
        file: keys.file.to_owned(),
        architecture: wanted.to_owned(),
        supported: known()
            .map(|(_, spec)| spec.architecture)
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Keys that change the computation, with the values under which they do not.
fn refuse_unsupported(keys: &Keys, key: &impl Fn(&str) -> String) -> Result<(), CheckpointError> {
    let unsupported = |key: &str, value: String, remedy: &str| {
        Err(CheckpointError::unsupported(keys.file, key, value, remedy))
    };
    let linear = key("rope.scale_linear");
    if let Some(factor) = keys
        .positive(&linear)?
        .filter(|factor| factor.to_bits() != 1_f64.to_bits())
    {
        return unsupported(&linear, factor.to_string(), "only 1 is");
    }
    let experts = key("expert_count");
    if let Some(number) = keys.integer(&experts)?.filter(|number| *number != 0) {
        return unsupported(&experts, number.to_string(), "only files without it are");
    }
    if let Some(files) = keys.integer("split.count")?.filter(|files| *files > 1) {
        return unsupported(
            "split.count",
            files.to_string(),
            "merge the files with llama-gguf-split --merge",
        );
    }
    Ok(())
}

/// The share of a head that is rotated, from the number that is.
fn partial_rotary(
    keys: &Keys,
    key: &impl Fn(&str) -> String,
    (map, alias): (&mut Map<String, Value>, &mut BTreeMap<String, String>),
    spec: &GgufSpec,
) -> Result<(), CheckpointError> {
    let name = key("rope.dimension_count");
    let Some(rotated) = keys.size(&name, crate::config::MAX_WIDTH)? else {
        return Ok(());
    };
    let size = |name: &str| map.get(name).and_then(Value::as_u64);
    let derived = size(spec.keys.hidden_size)
        .zip(size(spec.keys.heads))
        .and_then(|(hidden, heads)| hidden.checked_div(heads));
    let Some(width) = spec.keys.head_dim.and_then(size).or(derived) else {
        return Ok(());
    };
    if rotated as u64 == width {
        return Ok(());
    }
    let part = rotated as f64 / width as f64;
    alias.insert(spec.keys.rotary_part.to_owned(), name);
    map.insert(spec.keys.rotary_part.to_owned(), json!(part));
    Ok(())
}

/// The scaling of the rotary frequencies.
fn scaling(
    keys: &Keys,
    key: &impl Fn(&str) -> String,
    map: &mut Map<String, Value>,
    rope: &RopeTensors,
) -> Result<(), CheckpointError> {
    let name = key("rope.scaling.type");
    let kind = keys.text(&name)?.unwrap_or("none");
    let number = |name: &str| keys.positive(&key(name));
    let original = keys.integer(&key("rope.scaling.original_context_length"))?;
    let scaling = match (kind, &rope.by_length) {
        // The factors themselves are in tensors.
        ("none" | "longrope", Some(_)) => json!({
            "rope_type": "default",
        }),
        ("none", None) => return Ok(()),
        ("linear", None) => json!({
            "rope_type": "linear",
            "factor": number("rope.scaling.factor")?,
        }),
        ("yarn", None) => json!({
            "rope_type": "yarn",
            "factor": number("rope.scaling.factor")?,
            "original_max_position_embeddings": original.map(integer),
            "attention_factor": number("rope.scaling.attn_factor")?,
            "beta_fast": number("rope.scaling.yarn_beta_fast")?,
            "beta_slow": number("rope.scaling.yarn_beta_slow")?,
        }),
        (other, _) => {
            let remedy =
                "none, linear and yarn are, without tensors of factors, and longrope with them";
            return Err(CheckpointError::unsupported(
                keys.file, &name, other, remedy,
            ));
        }
    };
    map.insert("rope_scaling".to_owned(), scaling);
    Ok(())
}

/// Puts the divisors that are in tensors in place of those that a factor would give.
fn set_divisors(
    keys: &Keys,
    architecture: &mut Architecture,
    rope: &RopeTensors,
) -> Result<(), CheckpointError> {
    let max_positions = architecture.max_positions;
    let prefix = keys.text("general.architecture")?.unwrap_or_default();
    let Positions::Rotary(ropes) = &mut architecture.positions else {
        return Ok(());
    };
    let Some(only) = ropes.first_mut() else {
        return Ok(());
    };
    if let Some(tensor) = &rope.all {
        only.scaling = RopeScaling::Divisors(divisors(keys, ROPE_DIVISORS, tensor, only.dims)?);
    }
    if let Some((short, long)) = &rope.by_length {
        let name = format!("{prefix}.rope.scaling.original_context_length");
        let original = keys
            .size(&name, crate::config::MAX_POSITIONS)?
            .unwrap_or(max_positions);
        let magnitude = keys.positive(&format!("{prefix}.rope.scaling.attn_factor"))?;
        let factor = max_positions as f64 / original as f64;
        let derived = if factor <= 1.0 {
            1.0
        } else {
            (1.0 + factor.ln() / (original as f64).ln()).sqrt()
        };
        only.scaling = RopeScaling::LongRope {
            short: divisors(keys, ROPE_SHORT, short, only.dims)?,
            long: divisors(keys, ROPE_LONG, long, only.dims)?,
            original_max_positions: original,
            magnitude: magnitude.unwrap_or(derived),
        };
    }
    Ok(())
}

fn divisors(
    keys: &Keys,
    name: &str,
    tensor: &StoredTensor,
    dims: usize,
) -> Result<Vec<f32>, CheckpointError> {
    let expected = vec![dims / 2];
    if tensor.format != Format::Plain(WeightDtype::F32) {
        return Err(CheckpointError::UnsupportedDtype {
            file: keys.file.to_owned(),
            tensor: name.to_owned(),
            dtype: format!("{:?}", tensor.format),
            supported: "F32",
        });
    }
    if tensor.shape != expected {
        return Err(CheckpointError::WrongShape {
            file: keys.file.to_owned(),
            tensor: name.to_owned(),
            stored: tensor.shape.clone(),
            expected,
        });
    }
    let divisors = WeightDtype::F32.to_float32(&keys.bytes[tensor.bytes.clone()]);
    if divisors
        .iter()
        .all(|divisor| divisor.is_finite() && *divisor > 0.0)
    {
        return Ok(divisors);
    }
    let detail = format!("tensor `{name}` has a divisor that is not a positive number");
    Err(CheckpointError::damaged(keys.file, detail))
}
