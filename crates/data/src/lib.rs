//! Datasets and tokenization: from a file of text to the token ids of its documents.
//!
//! [`tokenize`] streams a dataset through a tokenizer into a file of token ids, which is mapped
//! into memory and kept: the next job that asks for the same text, tokenizer and options finds
//! it. Neither the text nor the ids need to fit in memory, one document and one batch apart.

mod documents;
mod error;
mod map;
mod memory;
mod root;
mod store;
mod tokenize;
mod writer;

pub use error::{DataError, LineFault};
pub use root::{PathError, Root};
pub use store::TokenStore;
pub use tokenize::{DatasetSource, tokenize};
