//! config.json: both the style found on the hub and the one transformers 5 writes.

use serde_json::{Map, Value};

use crate::family::{Defaults, Family};
use crate::tensor::WeightDtype;
use crate::{Architecture, CheckpointError, Rope, RopeScaling};

/// Bounds of what is believed. Larger values are damage, and arithmetic on sizes within them
/// cannot overflow.
pub(crate) const MAX_WIDTH: u64 = 1 << 24;
pub(crate) const MAX_LAYERS: u64 = 1 << 12;
pub(crate) const MAX_POSITIONS: u64 = 1 << 31;

/// What config.json says.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// With `tied_head` as the file has it; the stored tensors have the last word.
    pub(crate) architecture: Architecture,
    /// `dtype` or `torch_dtype`.
    pub(crate) dtype: Option<WeightDtype>,
}

/// Reads config.json; `file` is its name in errors.
pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Configuration, CheckpointError> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| CheckpointError::damaged(file, format!("it is not JSON ({error})")))?;
    let Value::Object(map) = &value else {
        return Err(CheckpointError::damaged(file, "it is not a JSON object"));
    };
    let fields = Fields {
        file,
        within: "",
        map,
    };
    let family = family(&fields)?;
    refuse_unsupported(&fields, &family.spec().defaults)?;
    Ok(Configuration {
        architecture: architecture(&fields, family)?,
        dtype: dtype(&fields)?,
    })
}

fn family(fields: &Fields) -> Result<Family, CheckpointError> {
    let class = match fields.get("architectures") {
        Some(Value::Array(classes)) => classes.first().and_then(Value::as_str),
        _ => None,
    };
    let model_type = fields.text("model_type")?;
    let found = Family::ALL.iter().copied().find(|family| {
        let spec = family.spec();
        model_type.is_none_or(|name| name == spec.model_type)
            && class.is_none_or(|name| name == spec.class)
            && (model_type.is_some() || class.is_some())
    });
    found.ok_or_else(|| {
        let named: Vec<&str> = model_type.into_iter().chain(class).collect();
        CheckpointError::UnknownArchitecture {
            file: fields.file.to_owned(),
            architecture: if named.is_empty() {
                "(none named)".into()
            } else {
                named.join("/")
            },
            supported: Family::ALL
                .iter()
                .map(|family| format!("{}/{}", family.spec().model_type, family.spec().class))
                .collect::<Vec<_>>()
                .join(", "),
        }
    })
}

fn refuse_unsupported(fields: &Fields, defaults: &Defaults) -> Result<(), CheckpointError> {
    for name in ["attention_bias", "mlp_bias"] {
        if fields.flag(name)?.unwrap_or(false) {
            return Err(fields.unsupported(name, "true", "only layers without bias are"));
        }
    }
    let activation = fields.text("hidden_act")?.unwrap_or(defaults.hidden_act);
    if activation != "silu" {
        return Err(fields.unsupported("hidden_act", activation, "only silu is"));
    }
    if let Some(quantization) = fields.get("quantization_config") {
        let method = quantization
            .get("quant_method")
            .and_then(Value::as_str)
            .unwrap_or("set");
        let remedy = "only unquantised safetensors are; give those, or a GGUF file";
        return Err(fields.unsupported("quantization_config", method, remedy));
    }
    Ok(())
}

fn architecture(fields: &Fields, family: Family) -> Result<Architecture, CheckpointError> {
    let defaults = &family.spec().defaults;
    let hidden_size = fields.required_size("hidden_size", MAX_WIDTH)?;
    let heads = fields.required_size("num_attention_heads", MAX_WIDTH)?;
    let architecture = Architecture {
        family,
        hidden_size,
        intermediate_size: fields.required_size("intermediate_size", MAX_WIDTH)?,
        layers: fields.required_size("num_hidden_layers", MAX_LAYERS)?,
        heads,
        kv_heads: fields
            .size("num_key_value_heads", MAX_WIDTH)?
            .unwrap_or(heads),
        head_dim: fields
            .size("head_dim", MAX_WIDTH)?
            .unwrap_or(hidden_size / heads),
        vocab_size: fields.required_size("vocab_size", MAX_WIDTH)?,
        max_positions: fields
            .size("max_position_embeddings", MAX_POSITIONS)?
            .unwrap_or(defaults.max_positions),
        norm_eps: fields
            .positive("rms_norm_eps")?
            .unwrap_or(defaults.norm_eps),
        rope: rope(fields, defaults)?,
        tied_head: fields
            .flag("tie_word_embeddings")?
            .unwrap_or(defaults.tied_head),
    };
    check_heads(
        &architecture,
        |field, detail| fields.wrong(field, detail),
        HEAD_FIELDS,
    )?;
    Ok(architecture)
}

/// Names of the fields [`check_heads`] can find fault with: head width, key and value heads.
const HEAD_FIELDS: (&str, &str) = ("head_dim", "num_key_value_heads");

/// Rules between sizes that no tensor's shape shows.
pub(crate) fn check_heads(
    architecture: &Architecture,
    wrong: impl Fn(&str, String) -> CheckpointError,
    (head_dim, kv_heads): (&str, &str),
) -> Result<(), CheckpointError> {
    let Architecture {
        heads,
        kv_heads: groups,
        head_dim: width,
        ..
    } = *architecture;
    if width == 0 || width % 2 != 0 {
        let detail = format!("is {width}, but rotary embedding needs heads of an even width");
        return Err(wrong(head_dim, detail));
    }
    if heads % groups != 0 {
        let detail = format!("is {groups}, which does not divide the {heads} attention heads");
        return Err(wrong(kv_heads, detail));
    }
    Ok(())
}

/// As transformers 5: a non-null `rope_scaling` wins over `rope_parameters`, a `rope_theta` inside
/// of it over one beside it.
fn rope(fields: &Fields, defaults: &Defaults) -> Result<Rope, CheckpointError> {
    let scaling = match fields.object("rope_scaling")? {
        None => fields.object("rope_parameters")?,
        scaling => scaling,
    };
    let beside = fields.positive("rope_theta")?;
    let Some(scaling) = scaling else {
        let theta = beside.unwrap_or(defaults.rope_theta);
        return Ok(Rope {
            theta,
            scaling: RopeScaling::None,
        });
    };
    if scaling.map.values().any(Value::is_object) {
        let remedy = "only one set of parameters for all layers is";
        return Err(fields.unsupported(scaling.within, "set per kind of layer", remedy));
    }
    if let Some(part) = scaling
        .positive("partial_rotary_factor")?
        .filter(|part| *part < 1.0)
    {
        return Err(scaling.unsupported(
            "partial_rotary_factor",
            part.to_string(),
            "only whole heads are",
        ));
    }
    let kind = match scaling.text("rope_type")? {
        None => scaling.text("type")?,
        kind => kind,
    };
    Ok(Rope {
        theta: scaling
            .positive("rope_theta")?
            .or(beside)
            .unwrap_or(defaults.rope_theta),
        scaling: match kind.unwrap_or("default") {
            "default" => RopeScaling::None,
            "llama3" => llama3(&scaling)?,
            other => {
                return Err(scaling.unsupported("rope_type", other, "default and llama3 are"));
            }
        },
    })
}

fn llama3(fields: &Fields) -> Result<RopeScaling, CheckpointError> {
    let number = |name| {
        let value = fields.positive(name)?;
        value.ok_or_else(|| fields.wrong(name, "is missing"))
    };
    let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
    if low >= high {
        let detail = format!("is {low}, but it must be below high_freq_factor, which is {high}");
        return Err(fields.wrong("low_freq_factor", detail));
    }
    Ok(RopeScaling::Llama3 {
        factor: number("factor")?,
        low_freq_factor: low,
        high_freq_factor: high,
        original_max_positions: number("original_max_position_embeddings")?,
    })
}

/// transformers 5 writes `dtype`, before it was `torch_dtype`.
fn dtype(fields: &Fields) -> Result<Option<WeightDtype>, CheckpointError> {
    let name = if fields.get("dtype").is_some() {
        "dtype"
    } else {
        "torch_dtype"
    };
    let Some(text) = fields.text(name)? else {
        return Ok(None);
    };
    let known = WeightDtype::ALL
        .into_iter()
        .find(|dtype| dtype.name() == text);
    let remedy = "float32, float16 and bfloat16 are";
    known
        .map(Some)
        .ok_or_else(|| fields.unsupported(name, text, remedy))
}

/// The fields of one JSON object; null counts as absent, as in transformers.
struct Fields<'a> {
    file: &'a str,
    /// Name of the field the object is the value of; empty at the top.
    within: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    fn path(&self, name: &str) -> String {
        match self.within {
            "" => name.to_owned(),
            within => format!("{within}.{name}"),
        }
    }

    fn wrong(&self, name: &str, detail: impl Into<String>) -> CheckpointError {
        CheckpointError::configuration(self.file, &self.path(name), detail)
    }

    fn unsupported(&self, name: &str, value: impl Into<String>, remedy: &str) -> CheckpointError {
        CheckpointError::unsupported(self.file, &self.path(name), value, remedy)
    }

    fn typed<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let typed = read(value).ok_or_else(|| {
            // The value may be a whole document.
            let text: String = value.to_string().chars().take(40).collect();
            self.wrong(name, format!("is {text}, but it must be {wanted}"))
        })?;
        Ok(Some(typed))
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.typed(name, "a string", Value::as_str)
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    fn positive(&self, name: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(name, "a positive number", |value| {
            value
                .as_f64()
                .filter(|number| number.is_finite() && *number > 0.0)
        })
    }

    fn size(&self, name: &str, most: u64) -> Result<Option<usize>, CheckpointError> {
        self.typed(name, &format!("an integer from 1 to {most}"), |value| {
            let number = value
                .as_u64()
                .filter(|number| (1..=most).contains(number))?;
            usize::try_from(number).ok()
        })
    }

    fn required_size(&self, name: &str, most: u64) -> Result<usize, CheckpointError> {
        self.size(name, most)?
            .ok_or_else(|| self.wrong(name, "is missing"))
    }

    fn object(&self, name: &'a str) -> Result<Option<Fields<'a>>, CheckpointError> {
        let map = self.typed(name, "an object", Value::as_object)?;
        Ok(map.map(|map| Fields {
            file: self.file,
            within: name,
            map,
        }))
    }
}
