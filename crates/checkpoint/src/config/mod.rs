//! config.json: both the style found on the hub and the one transformers 5 writes.

mod common;
mod fields;
mod rope;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use self::common::{
    Defaults, Keys, LLAMA, Width, common, every_block, experts, layer_types, rotary, slide_all,
    window,
};
pub(crate) use self::fields::Fields;
pub(crate) use self::rope::{Original, Place as RopePlace, rope};
use crate::tensor::WeightDtype;
use crate::{Architecture, CheckpointError, Family};

/// Bounds of what is believed. Larger values are damage, and arithmetic on sizes within them
/// cannot overflow.
pub(crate) const MAX_WIDTH: u64 = 1 << 24;
pub(crate) const MAX_LAYERS: u64 = 1 << 12;
pub(crate) const MAX_POSITIONS: u64 = 1 << 31;
pub(crate) const MAX_EXPERTS: u64 = 1 << 12;

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
        within: String::new(),
        map,
        alias: &BTreeMap::new(),
    };
    let family = family(&fields)?;
    refuse_quantised(&fields)?;
    // Models of text and images have the decoder's fields in an object of their own.
    let text = fields.object("text_config")?;
    let of_text = text.as_ref().unwrap_or(&fields);
    let dtype = match dtype(&fields)? {
        None => dtype(of_text)?,
        dtype => dtype,
    };
    let mut architecture = family.configure(of_text)?;
    if text.is_some() {
        architecture.tied_head = fields.flag("tie_word_embeddings")?.unwrap_or(true);
    }
    Ok(Configuration {
        architecture,
        dtype,
    })
}

fn family(fields: &Fields) -> Result<Family, CheckpointError> {
    let class = match fields.get("architectures") {
        Some(Value::Array(classes)) => classes.first().and_then(Value::as_str),
        _ => None,
    };
    let model_type = fields.text("model_type")?;
    let found = Family::all().find(|family| {
        family.spec().types.iter().any(|(known_type, known_class)| {
            model_type.is_none_or(|name| name == *known_type)
                && class.is_none_or(|name| name == *known_class)
                && (model_type.is_some() || class.is_some())
        })
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
            supported: Family::all()
                .flat_map(|family| family.spec().types)
                .map(|(name, class)| format!("{name}/{class}"))
                .collect::<Vec<_>>()
                .join(", "),
        }
    })
}

fn refuse_quantised(fields: &Fields) -> Result<(), CheckpointError> {
    let Some(quantization) = fields.get("quantization_config") else {
        return Ok(());
    };
    let method = quantization
        .get("quant_method")
        .and_then(Value::as_str)
        .unwrap_or("set");
    let remedy = "only unquantised safetensors are; give those, or a GGUF file";
    Err(fields.unsupported("quantization_config", method, remedy))
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
