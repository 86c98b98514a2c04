//! What can be wrong with a dataset.

use std::fmt;
use std::io;

use assay_api::ErrorCode;
use assay_checkpoint::{ChatError, CheckpointError};

/// Why a dataset cannot be tokenized or inspected.
///
/// Files are named as they are below the data root, never by absolute path, so that the text can
/// be sent to a client.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system refuses to read the dataset.
    #[error("cannot read {file}: {source}; {}", remedy(source))]
    Unreadable {
        /// The file.
        file: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is not what its name says, or is cut short.
    #[error("{file} is not {kind}, or is damaged: {detail}; write or copy it again")]
    Damaged {
        /// The file.
        file: String,
        /// What it should be, with its article.
        kind: &'static str,
        /// What the decoder says.
        detail: String,
    },
    /// A record is not what the format asks for.
    #[error("{place}: {fault}")]
    InvalidRecord {
        /// Where it stands.
        place: Place,
        /// What is wrong with it.
        fault: Box<RecordFault>,
    },
    /// A Parquet file lacks a column.
    #[error("{file} has no column `{field}`; it has {columns}; name the column with the text")]
    ColumnMissing {
        /// The file.
        file: String,
        /// The column asked for.
        field: String,
        /// The columns there are.
        columns: String,
    },
    /// A column of a Parquet file does not hold strings.
    #[error(
        "column `{field}` of {file} holds {found}, not strings; the file has {columns}; name the \
         column with the text"
    )]
    ColumnNotStrings {
        /// The file.
        file: String,
        /// The column asked for.
        field: String,
        /// What it holds.
        found: String,
        /// The columns there are.
        columns: String,
    },
    /// A text dataset is not UTF-8.
    #[error("{file} is not UTF-8 at byte {offset}; convert it to UTF-8")]
    NotUtf8 {
        /// The file.
        file: String,
        /// Offset of the first byte that is not UTF-8, after decompression.
        offset: usize,
    },
    /// The chat template refuses the messages of a record.
    #[error("{place}: {source}")]
    Chat {
        /// Where the record stands.
        place: Place,
        /// What the template says.
        source: ChatError,
    },
    /// The checkpoint has no chat template.
    #[error(
        "{file} has chat messages, which the chat template of a checkpoint makes a text of, and \
         there is none; name a model that has one"
    )]
    NoChatTemplate {
        /// The dataset.
        file: String,
    },
    /// Only some tokens of joined documents would count.
    #[error("{file}: only `rolling` scores some tokens of a document and not all; choose it")]
    MaskedAndJoined {
        /// The dataset.
        file: String,
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
    /// The documents have tokens, and none of them counts.
    #[error(
        "{file}: none of the {documents} documents taken has a token that counts; give some \
         turns of the assistant or responses, or score all tokens by `\"score\": \"all\"`"
    )]
    NothingCounted {
        /// The dataset.
        file: String,
        /// Documents taken.
        documents: u64,
    },
    /// More groups than a result may have.
    #[error(
        "{file}: the field `{field}` has more than {limit} different values; group by a field \
         with fewer"
    )]
    TooManyGroups {
        /// The dataset.
        file: String,
        /// The field.
        field: String,
        /// How many are allowed.
        limit: usize,
    },
    /// A file was written to while it was read.
    #[error("{file} changed while it was read; submit the job again once the file is complete")]
    Changed {
        /// The dataset.
        file: String,
    },
    /// Tokenizing would take more memory than there is.
    #[error(
        "{file}: tokenizing {megabytes} MB of text at once takes about {needed:.1} GB of memory, \
         and this host has {available:.1} GB available; {remedy}"
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
        /// What to do about it.
        remedy: &'static str,
    },
    /// A record, or a text, is larger than what is held in memory at once.
    #[error(
        "{place} has more than the {megabytes} MB that this host has memory for; cut it into \
         shorter documents"
    )]
    TooLongForMemory {
        /// Where it stands.
        place: Place,
        /// The most that is taken, in 10^6 bytes.
        megabytes: u64,
    },
    /// A compressed Parquet file does not fit on the disk when decompressed.
    #[error(
        "{file} takes more than {megabytes} MB when decompressed, for which the directory of \
         temporary files has no room; give the .parquet file itself, which is compressed inside"
    )]
    TooLargeForDisk {
        /// The file.
        file: String,
        /// The most that is taken, in 10^6 bytes.
        megabytes: u64,
    },
    /// A limit in tokens, and nothing to count them by.
    #[error("`limit_tokens` counts the tokens of a model; name one in `model`")]
    NoTokenizer,
    /// Whoever asked no longer waits.
    #[error("stopped, since nobody waits for the answer")]
    Cancelled,
    /// The tokenizer fails on a document.
    #[error(transparent)]
    Tokenizer(#[from] CheckpointError),
    /// The token cache cannot be written or read back.
    #[error("cannot write the token cache: {0}; check that its directory is writable and has room")]
    Cache(#[source] io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::OutOfMemory => "give this program more memory",
        _ => "check that it exists and that this program may read it",
    }
}

impl DataError {
    pub(crate) fn invalid(place: Place, fault: RecordFault) -> Self {
        let fault = Box::new(fault);
        Self::InvalidRecord { place, fault }
    }

    /// The code under which a client learns of it.
    pub fn code(&self) -> ErrorCode {
        match self {
            // A file is mapped, which fails where the address space is full.
            Self::Unreadable { source, .. } | Self::Cache(source)
                if source.kind() == io::ErrorKind::OutOfMemory =>
            {
                ErrorCode::OutOfMemory
            }
            Self::Unreadable { .. } => ErrorCode::DatasetUnreadable,
            Self::Damaged { .. }
            | Self::InvalidRecord { .. }
            | Self::ColumnMissing { .. }
            | Self::ColumnNotStrings { .. }
            | Self::TooManyGroups { .. }
            | Self::NotUtf8 { .. } => ErrorCode::DatasetInvalid,
            Self::Chat { .. } => ErrorCode::ChatRefused,
            Self::NoChatTemplate { .. } => ErrorCode::ChatTemplateUnusable,
            Self::MaskedAndJoined { .. } => ErrorCode::MethodInvalid,
            Self::Empty { .. } | Self::NothingToScore { .. } | Self::NothingCounted { .. } => {
                ErrorCode::DatasetEmpty
            }
            Self::Changed { .. } => ErrorCode::DataDiffers,
            Self::Tokenizer(error) => error.code(),
            Self::TooLargeForMemory { .. } | Self::TooLongForMemory { .. } => {
                ErrorCode::OutOfMemory
            }
            Self::NoTokenizer => ErrorCode::InvalidRequest,
            Self::Cancelled => ErrorCode::Timeout,
            Self::TooLargeForDisk { .. } | Self::Cache(_) => ErrorCode::Internal,
        }
    }
}

/// Where a record stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, from 1; blank lines count.
    Line(String, u64),
    /// A row of a Parquet file, from 1.
    Row(String, u64),
    /// An item of the documents that a request brings, from 0 as in JSON pointers.
    Item(u64),
    /// A whole file.
    File(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(file, line) => write!(f, "{file}, line {line}"),
            Self::Row(file, row) => write!(f, "{file}, row {row}"),
            Self::Item(item) => write!(f, "documents[{item}]"),
            Self::File(file) => f.write_str(file),
        }
    }
}

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// Not UTF-8.
    #[error("byte {offset} of the line is not UTF-8; convert the file to UTF-8")]
    NotUtf8 {
        /// Offset in the line of the first byte that is not UTF-8.
        offset: usize,
    },
    /// A string of a Parquet file is not UTF-8.
    #[error("a string of it is not UTF-8; write the file anew, with strings in UTF-8")]
    StringNotUtf8,
    /// Not JSON.
    #[error("not JSON at column {column} ({detail}); every line takes one JSON object")]
    NotJson {
        /// The column, in bytes, from 1.
        column: usize,
        /// What the parser says.
        detail: String,
    },
    /// JSON, but not an object.
    #[error("{found} where a JSON object is due; every record takes one JSON object")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// The object lacks the field.
    #[error("no field `{field}`; the object has {fields}; name the field in `{option}`")]
    FieldMissing {
        /// The field asked for.
        field: String,
        /// The option of the dataset that names it.
        option: &'static str,
        /// The fields there are.
        fields: String,
    },
    /// The field is not what it should be.
    #[error(
        "field `{field}` is {found}, not {expected}; the object has {fields}; name the field in \
         `{option}`"
    )]
    FieldOfWrongKind {
        /// The field asked for.
        field: String,
        /// The option of the dataset that names it.
        option: &'static str,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: &'static str,
        /// The fields there are.
        fields: String,
    },
    /// The value that names a group cannot be a name.
    #[error(
        "the value of `{field}` cannot name a group: a name takes at most {limit} bytes and no NUL"
    )]
    GroupName {
        /// The field.
        field: String,
        /// The most bytes there may be.
        limit: usize,
    },
}
