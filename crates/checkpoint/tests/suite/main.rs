//! Checkpoints through the public surface: what opens, what is refused and how.

mod demo;
mod digests;
mod gguf;
mod gguf_file;
mod hugging_face;
mod mutations;
mod refused;
mod sandbox;
