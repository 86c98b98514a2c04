//! Checkpoints: configuration, weights and tokenizer of a Hugging Face directory or a GGUF file,
//! checked without reading a weight. No tensors, no arithmetic on them.

mod architecture;
mod chat;
mod checkpoint;
mod config;
mod digest;
mod directory;
mod error;
mod family;
mod gguf;
mod hf_tokenizer;
mod inspect;
mod map;
mod safetensors;
mod sentencepiece;
mod tensor;
mod tokenizer;

pub use architecture::{Architecture, LayerSlot, Rope, RopeScaling, Slot};
pub use chat::{ChatError, ChatTemplate, Rendered};
pub use checkpoint::Checkpoint;
pub use digest::{DigestCache, FileState};
pub use error::CheckpointError;
pub use family::Family;
pub use inspect::inspect;
pub use tensor::{Weight, WeightDtype};
pub use tokenizer::{TextTokenizer, TokenBytes};
