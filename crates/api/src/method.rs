//! How text becomes numbers: convention, window, dtype.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How text becomes windows and counted spans.
///
/// Under `rolling` each document is scored alone. The others score all documents of a dataset as
/// one text, joined by `join` and tokenized whole; there a token belongs to the document that
/// holds its first byte, a separator to the document before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Convention {
    /// The rolling log-likelihood of lm-evaluation-harness: each document alone, tokenized
    /// without special tokens, one prefix token (the tokenizer's BOS, else its EOS) in front,
    /// disjoint windows with one token of context; the last, shorter span keeps a full window
    /// of context. Every token is scored once. The only convention with word and byte measures.
    #[default]
    Rolling,
    /// The joined text in disjoint blocks of `window` tokens, the first token of each not
    /// scored: the perplexity of most papers, GPTQ's among them. The shorter block at the end is
    /// dropped, or scored with `"tail": "score"`.
    Blocks,
    /// Windows over the joined text that start every `stride` tokens; each token after the first
    /// is scored once, in the first window that holds it: the Hugging Face documentation's,
    /// with each token weighted alike.
    Strided,
    /// llama.cpp's `llama-perplexity`: disjoint blocks of `window` tokens over the joined text,
    /// of which only the second half is scored (targets `window / 2 + 1 .. window`). Where the
    /// tokenizer adds a BOS, it overwrites the first token of each block. The shorter block at
    /// the end is dropped.
    Llamacpp,
}

impl Convention {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rolling => "rolling",
            Self::Blocks => "blocks",
            Self::Strided => "strided",
            Self::Llamacpp => "llamacpp",
        }
    }

    /// Whether the documents are scored as one joined text.
    pub const fn is_joined(self) -> bool {
        !matches!(self, Self::Rolling)
    }
}

/// Whether a BOS stands in front of the joined text (`llamacpp`: of each block). It is never
/// scored, and there are never two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bos {
    /// As the tokenizer's post-processor does.
    #[default]
    Auto,
    /// Yes.
    Always,
    /// No.
    Never,
}

/// What becomes of the shorter block at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tail {
    /// It is left out.
    #[default]
    Drop,
    /// It is scored, its first token apart.
    Score,
}

/// The method of a request; what is left out takes its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MethodRequest {
    /// How text becomes windows and counted spans.
    #[serde(default)]
    pub convention: Convention,
    /// Tokens in a window; the default is the smaller of 2048 and the model's positions, under
    /// `llamacpp` of 512. Under `llamacpp` at least 4, under `blocks` and `strided` at least 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub window: Option<u32>,
    /// `strided` only: tokens from the start of one window to that of the next, fewer than
    /// `window`; the default is the smaller of 512 and half a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub stride: Option<u32>,
    /// All but `rolling`: the text between two documents; the default is two line feeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<String>,
    /// Whether a BOS stands in front; the default is `auto`. `rolling` always has its prefix,
    /// so it refuses `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<Bos>,
    /// `blocks` only: what becomes of the shorter block at the end; the default is `drop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

/// The method with every default filled in. Options that the convention does not have are left
/// out.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct Method {
    /// How text becomes windows and counted spans.
    pub convention: Convention,
    /// Tokens in a window.
    pub window: u32,
    /// Tokens from the start of one window to that of the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<u32>,
    /// The text between two documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<String>,
    /// Whether a BOS stands in front.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bos: Option<Bos>,
    /// What becomes of the shorter block at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
}

impl Method {
    /// `rolling` with this window.
    pub const fn rolling(window: u32) -> Self {
        Self {
            convention: Convention::Rolling,
            window,
            stride: None,
            join: None,
            bos: None,
            tail: None,
        }
    }
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
    /// All dtypes.
    pub const ALL: &[Dtype] = &[Self::Float32, Self::Bfloat16];

    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Dtype::Float32 => "float32",
            Dtype::Bfloat16 => "bfloat16",
        }
    }

    /// Bytes of one number.
    pub const fn bytes(self) -> u64 {
        match self {
            Dtype::Float32 => 4,
            Dtype::Bfloat16 => 2,
        }
    }
}
