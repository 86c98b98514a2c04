//! Datasets and tokenization: from files of text to the token ids of their documents.
//!
//! [`Source::resolve`] finds the files of a request's dataset. [`tokenize`] streams them through a
//! tokenizer into a file of token ids, which is mapped into memory and kept: the next job that
//! asks for the same text, tokenizer and options finds it. Neither the text nor the ids need to
//! fit in memory, one document and one batch apart; joined documents are one text, which has to.
//!
//! The way of a document: `find` (files) → `reader` (bytes, decompressed) → `records` and `rows`
//! (one JSON line, Parquet row or inline item each) → `documents` (text, counted bytes, group) →
//! `taken` (sample and limits, tokens) → `writer` and `store` (the token file).

mod aside;
mod batch;
mod container;
mod digest;
mod documents;
mod encode;
mod error;
mod fetched;
mod find;
mod groups;
mod inspect;
mod joined;
mod list;
mod map;
mod memory;
mod reader;
mod records;
mod root;
mod rows;
mod sample;
mod scope;
mod source;
mod store;
mod taken;
mod tokenize;
mod uploads;
mod writer;

pub use error::{DataError, Place, RecordFault};
pub use fetched::Fetched;
pub use inspect::inspect;
pub use list::{Entry, is_dataset};
pub use root::{PathError, Root};
pub use scope::{MethodError, RowScope, convention, prefix};
pub use source::{Source, SourceError, SourceFile};
pub use store::TokenStore;
pub use tokenize::{Reading, tokenize, tokenize_until};
pub use uploads::{StoredUpload, UploadError, UploadWriter, Uploads};
