//! Families: which configurations they cover, how these are read, and what weights are called.
//!
//! A family is one file here: its [`FamilySpec`], with a function from the fields of config.json to
//! an [`Architecture`]. No family computes anything.

mod cohere;
mod falcon;
mod gemma;
mod gpt2;
mod gpt_neox;
mod granite;
mod llama;
mod mistral;
mod mixtral;
mod olmo2;
mod opt;
mod phi;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod shared;
mod smollm3;
mod stablelm;
mod starcoder2;

use std::fmt;

use crate::config::{Fields, Keys};
use crate::names::NameTable;
use crate::{Architecture, CheckpointError};

/// All families, in the order of the documentation.
const ALL: &[&FamilySpec] = &[
    &llama::LLAMA,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &mistral::MISTRAL,
    &gemma::GEMMA2,
    &gemma::GEMMA3,
    &gemma::GEMMA,
    &phi3::PHI3,
    &smollm3::SMOLLM3,
    &gpt2::GPT2,
    &gpt_neox::GPT_NEOX,
    &phi::PHI,
    &olmo2::OLMO2,
    &mixtral::MIXTRAL,
    &qwen3_moe::QWEN3_MOE,
    &granite::GRANITE,
    &stablelm::STABLELM,
    &starcoder2::STARCODER2,
    &cohere::COHERE,
    &falcon::FALCON,
    &opt::OPT,
];

/// A family of architectures that share their names and defaults.
#[derive(Clone, Copy)]
pub struct Family(&'static FamilySpec);

/// Everything that tells one family from another.
pub(crate) struct FamilySpec {
    /// Its name, such as `llama`.
    pub(crate) name: &'static str,
    /// Models that are known under other names.
    pub(crate) models: &'static str,
    /// `model_type` of config.json, and the class in `architectures` that has a language-model
    /// head.
    pub(crate) types: &'static [(&'static str, &'static str)],
    /// From the fields of config.json to the decoder.
    pub(crate) configure: fn(&Fields, Family) -> Result<Architecture, CheckpointError>,
    /// Names of the weights in safetensors files.
    pub(crate) safetensors: NameTable,
    /// Ends of the names of stored buffers that are computed anew and so not read.
    pub(crate) buffers: &'static [&'static str],
    /// Starts of the names of parts that text does not pass through.
    pub(crate) other_parts: &'static [&'static str],
    /// How GGUF files have it, if they do.
    pub(crate) gguf: Option<&'static GgufSpec>,
}

/// A family in GGUF files.
pub(crate) struct GgufSpec {
    /// `general.architecture`, also the prefix of its keys.
    pub(crate) architecture: &'static str,
    /// What its configuration class calls the common fields.
    pub(crate) keys: &'static Keys,
    /// Names of the weights.
    pub(crate) names: NameTable,
    /// Adds the fields of config.json that are constants of llama.cpp.
    pub(crate) constants: fn(&mut serde_json::Map<String, serde_json::Value>),
}

impl Family {
    /// All families, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(|spec| Self(spec))
    }

    /// Models of the family, as people call them.
    pub fn models(self) -> &'static str {
        self.0.models
    }

    /// What config.json calls it: pairs of `model_type` and the class in `architectures`.
    pub fn types(self) -> &'static [(&'static str, &'static str)] {
        self.0.types
    }

    /// What a GGUF file calls it, if it is read from there: `general.architecture`.
    pub fn gguf(self) -> Option<&'static str> {
        self.0.gguf.map(|spec| spec.architecture)
    }

    /// Ends of the names of stored buffers that are computed anew and so not read.
    pub fn buffers(self) -> &'static [&'static str] {
        self.0.buffers
    }

    /// Starts of the names of stored parts that text does not pass through.
    pub fn other_parts(self) -> &'static [&'static str] {
        self.0.other_parts
    }

    /// The name as it travels, such as `llama`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    pub(crate) fn spec(self) -> &'static FamilySpec {
        self.0
    }

    pub(crate) fn configure(self, fields: &Fields) -> Result<Architecture, CheckpointError> {
        (self.0.configure)(fields, self)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Family {}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
