//! The one decoder of Assay: reads a checkpoint's weights and scores micro-batches of windows.
//!
//! Everything a family of models differs in arrives as data
//! ([`Architecture`](assay_checkpoint::Architecture)); there is one forward pass. A micro-batch is
//! ragged: the linears run over the tokens of all its windows as one matrix, attention over groups
//! of windows of equal length. Nothing is padded but the row count of a matrix product, to
//! [`MIN_GEMM_ROWS`].

mod attention;
mod batch;
mod engine;
mod error;
mod head;
mod layer;
mod linear;
mod loss;
mod mask;
mod memory;
mod mlp;
mod model;
mod norm;
mod profile;
mod rope;
pub mod runtime;
mod torch;
mod view;
mod weights;

pub use assay_kernels::Level;
pub use batch::Sequence;
pub use engine::Products;
pub use error::DecoderError;
pub use memory::weight_bytes;
pub(crate) use model::kind_of;
pub use model::{Decoder, HEAD_ROWS, MIN_GEMM_ROWS};
pub use profile::{Profile, Stage};
