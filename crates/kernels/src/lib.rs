//! What a transformer computes on a processor, in as few passes over memory as it takes: matrix
//! products with what follows them, attention, norms, rotary embeddings, the loss.
//!
//! Every kernel is written once, over vectors ([`vector::Vector`]), and compiled for each
//! [`Level`]; the caller chooses one at run time. Matrices are slices; a kernel checks their shapes
//! and then reads and writes through pointers. What it computes depends on the level, and not on
//! how many threads share the work.
//!
//! `unsafe` is for the vectors' instructions and for these pointers: threads write to rows of one
//! matrix, and checks of bounds would cost as much as the arithmetic.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // see `level::Kernel`

mod activation;
mod attention;
mod dot;
mod function;
mod level;
mod loss;
mod norm;
mod number;
mod panels;
mod product;
mod rope;
mod rows;
mod softmax;
mod space;
mod threads;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use activation::Activation;
pub use attention::{Attention, Window};
pub use dot::Factor;
pub use half::bf16;
pub use level::Level;
pub use loss::{Head, Logits, nll};
pub use norm::RmsNorm;
pub use number::Number;
pub use panels::{PANEL, Panels, gated_slots};
pub use product::{After, product};
pub use rope::rotate;
pub use rows::{Rows, RowsMut};
pub use space::Space;
pub use threads::{Alone, Cpu, Threads};
