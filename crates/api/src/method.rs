//! How text becomes numbers: convention, window, dtype.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How text becomes windows and counted spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Convention {
    /// The rolling log-likelihood of lm-evaluation-harness: each document alone, tokenized
    /// without special tokens, one prefix token (the tokenizer's BOS, else its EOS) in front,
    /// disjoint windows with one token of context; the last, shorter span keeps a full window
    /// of context. Every token is scored once.
    #[default]
    Rolling,
}

/// The method of a request; what is left out takes its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MethodRequest {
    /// How text becomes windows and counted spans.
    #[serde(default)]
    pub convention: Convention,
    /// Tokens in a window; the default is the smaller of 2048 and the model's positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub window: Option<u32>,
}

/// The method with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Method {
    /// How text becomes windows and counted spans.
    pub convention: Convention,
    /// Tokens in a window.
    pub window: u32,
}

/// The dtype a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DtypeRequest {
    /// bfloat16 for bfloat16 checkpoints, float32 for all others. Never depends on the devices.
    #[default]
    Auto,
    /// Compute in float32.
    Float32,
    /// Compute in bfloat16; the loss is taken in float32 and float64.
    Bfloat16,
}

/// The dtype of the computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE 754 binary32.
    Float32,
    /// bfloat16.
    Bfloat16,
}

impl Dtype {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Dtype::Float32 => "float32",
            Dtype::Bfloat16 => "bfloat16",
        }
    }
}
