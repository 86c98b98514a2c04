//! What can be wrong with a dataset.

use std::io;

use assay_api::ErrorCode;
use assay_checkpoint::CheckpointError;

/// Why a dataset cannot be tokenized.
///
/// Files are named by their last component, never by absolute path, so that the text can be sent
/// to a client.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refuses to read the dataset.
    #[error("cannot read {file}: {source}; check that it exists and that this program may read it")]
    Unreadable {
        /// The dataset.
        file: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// A line of a JSONL dataset is not one.
    #[error("{file}, line {line}: {fault}")]
    InvalidLine {
        /// The dataset.
        file: String,
        /// Number of the line, from 1; blank lines count.
        line: u64,
        /// What is wrong with it.
        fault: LineFault,
    },
    /// A text dataset is not UTF-8.
    #[error("{file} is not UTF-8 at byte {offset}; convert it to UTF-8")]
    NotUtf8 {
        /// The dataset.
        file: String,
        /// Offset of the first byte that is not UTF-8.
        offset: usize,
    },
    /// The dataset has no document.
    #[error("{file} has no document; give a file with at least one that is not blank")]
    Empty {
        /// The dataset.
        file: String,
    },
    /// The documents have no token.
    #[error("{file}: none of the {documents} documents taken has a token; give some text to score")]
    NothingToScore {
        /// The dataset.
        file: String,
        /// Documents taken, all empty.
        documents: u64,
    },
    /// The file was written to while it was tokenized.
    #[error("{file} changed while it was read; submit the job again once the file is complete")]
    Changed {
        /// The dataset.
        file: String,
    },
    /// Tokenizing would take more memory than there is.
    #[error(
        "{file}: tokenizing {megabytes} MB of text at once takes about {needed:.1} GB of memory, \
         and this host has {available:.1} GB available; cut the text into documents, as a JSONL file"
    )]
    TooLargeForMemory {
        /// The dataset.
        file: String,
        /// Size of the text in 10^6 bytes.
        megabytes: u64,
        /// Memory it takes, in 10^9 bytes.
        needed: f64,
        /// Memory there is, in 10^9 bytes.
        available: f64,
    },
    /// The tokenizer fails on a document.
    #[error(transparent)]
    Tokenizer(#[from] CheckpointError),
    /// The token cache cannot be written or read back.
    #[error("cannot write the token cache: {0}; check that its directory is writable and has room")]
    Cache(#[source] io::Error),
}

impl DataError {
    /// The code under which a client learns of it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unreadable { .. } => ErrorCode::DatasetUnreadable,
            Self::InvalidLine { .. } | Self::NotUtf8 { .. } => ErrorCode::DatasetInvalid,
            Self::Empty { .. } | Self::NothingToScore { .. } => ErrorCode::DatasetEmpty,
            Self::Changed { .. } => ErrorCode::DataDiffers,
            Self::Tokenizer(error) => error.code(),
            Self::TooLargeForMemory { .. } => ErrorCode::OutOfMemory,
            Self::Cache(_) => ErrorCode::Internal,
        }
    }
}

/// What is wrong with a line of a JSONL dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// Not UTF-8.
    #[error("byte {offset} of the line is not UTF-8; convert the file to UTF-8")]
    NotUtf8 {
        /// Offset in the line of the first byte that is not UTF-8.
        offset: usize,
    },
    /// Not JSON.
    #[error("not JSON at column {column} ({detail}); every line takes one JSON object")]
    NotJson {
        /// The column, in bytes, from 1.
        column: usize,
        /// What the parser says.
        detail: String,
    },
    /// JSON, but not an object.
    #[error("{found} where a JSON object is due; every line takes one JSON object")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// The object lacks the field.
    #[error("no field `{field}`; the object has {fields}; name the field with the text in `field`")]
    FieldMissing {
        /// The field asked for.
        field: String,
        /// The fields there are.
        fields: String,
    },
    /// The field is not a string.
    #[error(
        "field `{field}` is {found}, not a string; the object has {fields}; name the field with \
         the text in `field`"
    )]
    FieldNotAString {
        /// The field asked for.
        field: String,
        /// What it is.
        found: &'static str,
        /// The fields there are.
        fields: String,
    },
}
