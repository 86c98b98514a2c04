//! What names a checkpoint in a request.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// A checkpoint, and what is added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRef {
    /// Path of the checkpoint below the model root: a directory as transformers writes it, or a
    /// `.gguf` file.
    pub path: String,
    /// Path of a LoRA adapter below the model root: a directory as PEFT writes it.
    pub adapter: Option<String>,
}

/// A checkpoint and an adapter, as they travel.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptedModel {
    /// Path of the checkpoint below the model root: a directory as transformers writes it, or a
    /// `.gguf` file.
    #[schema(example = "SmolLM2-135M-Instruct.Q4_1.gguf")]
    path: String,
    /// Path of a LoRA adapter below the model root: a directory with adapter_config.json and
    /// adapter_model.safetensors, as PEFT writes it. It is added to the weights as they are
    /// loaded; tokenizer and chat template are the checkpoint's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "adapters/summaries")]
    adapter: Option<String>,
}

/// Path of a checkpoint below the model root, or an object with it and a LoRA adapter.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ModelRef)]
pub enum ModelSchema {
    /// Path of the checkpoint: a directory as transformers writes it, or a `.gguf` file.
    Path(String),
    /// The checkpoint and an adapter.
    Adapted(AdaptedModel),
}

impl ModelRef {
    /// A checkpoint to which nothing is added.
    pub fn of(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            adapter: None,
        }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match &self.adapter {
            Some(adapter) => write!(f, " + {adapter}"),
            None => Ok(()),
        }
    }
}

impl Serialize for ModelRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { path, adapter } = self.clone();
        match adapter {
            None => path.serialize(serializer),
            adapter => AdaptedModel { path, adapter }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ModelRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathOrObject;

        // serde's `untagged` would answer "did not match any variant"; a visitor keeps the name
        // of the field that is wrong.
        impl<'de> Visitor<'de> for PathOrObject {
            type Value = ModelRef;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or an object with `path` and `adapter`")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<Self::Value, E> {
                Ok(ModelRef::of(path))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let AdaptedModel { path, adapter } =
                    AdaptedModel::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelRef { path, adapter })
            }
        }

        deserializer.deserialize_any(PathOrObject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_a_path_and_an_adapter_makes_an_object() {
        for json in [r#""a/b""#, r#"{"path":"a/b","adapter":"c"}"#] {
            let model: ModelRef = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&model).unwrap(), json);
        }
        let plain: ModelRef = serde_json::from_str(r#"{"path":"a/b"}"#).unwrap();
        assert_eq!(plain, ModelRef::of("a/b"));
        assert_eq!(plain.to_string(), "a/b");
        let both = ModelRef {
            adapter: Some("c".to_owned()),
            ..plain
        };
        assert_eq!(both.to_string(), "a/b + c");
    }

    #[test]
    fn what_is_neither_is_said_so() {
        for (json, words) in [
            ("3", "a path, or an object"),
            (r#"{"adapter":"c"}"#, "missing field `path`"),
            (r#"{"path":"a","lora":"c"}"#, "unknown field `lora`"),
        ] {
            let error = serde_json::from_str::<ModelRef>(json).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
