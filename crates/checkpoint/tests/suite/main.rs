//! Checkpoints through the public surface: what opens, what is refused and how.

mod adapters;
mod blocks;
mod chat;
mod demo;
mod digests;
mod gguf;
mod gguf_file;
mod gguf_tokenizers;
mod hugging_face;
mod inspection;
mod models;
mod mutations;
mod offsets;
mod preview;
mod refused;
mod sandbox;
mod sentencepiece;
mod tokenizers;
