//! Checkpoints: configuration, weights and tokenizer of a Hugging Face directory or a GGUF file,
//! checked without reading a weight. No tensors, no arithmetic on them.

mod adapter;
mod architecture;
mod chat;
mod checkpoint;
mod config;
mod digest;
mod directory;
mod error;
mod families;
mod gguf;
mod growth;
mod hf_tokenizer;
mod inspect;
mod map;
mod names;
mod preview;
mod rope;
mod safetensors;
mod sentencepiece;
mod slot;
mod tensor;
mod tokenizer;
mod tokenizers;
mod weight;

pub use adapter::LowRank;
pub use architecture::{
    Activation, Architecture, Biases, Block, BlockForm, Experts, NormKind, Positions, QkNorm,
    Scales, Softcaps,
};
pub use chat::{ChatError, ChatTemplate, Rendered};
pub use checkpoint::Checkpoint;
pub use digest::{DigestCache, FileState};
pub use error::CheckpointError;
pub use families::Family;
pub use gguf::{gguf_formats, gguf_pre_tokenizers};
pub use inspect::{inspect, inspect_preview};
pub use names::{NAME_INFIXES, NAME_PREFIXES};
pub use preview::Preview;
pub use rope::{Rope, RopeScaling};
pub use slot::{Param, Place, Slot};
pub use tensor::WeightDtype;
pub use tokenizer::{TextTokenizer, TokenBytes};
pub use tokenizers::Tokenizers;
pub use weight::Weight;
