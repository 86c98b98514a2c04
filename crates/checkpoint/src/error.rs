//! What can be wrong with a checkpoint.

use std::io;

use assay_api::ErrorCode;

/// Why a checkpoint, or its tokenizer, cannot be used.
///
/// Every text names the file and the tensor or field at fault, and what to do about it. Files
/// are named from the checkpoint's own name on (`model/config.json`), never by absolute path, so
/// that the text can be sent to a client.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refuses to read a file.
    #[error("cannot read {file}: {source}; {}", remedy(source))]
    Io {
        /// The file.
        file: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// The path is neither a Hugging Face directory nor a GGUF file.
    #[error("{path} is not a checkpoint: {detail}")]
    NotACheckpoint {
        /// The path.
        path: String,
        /// What is missing and what would be right.
        detail: String,
    },
    /// The only weights are pickles.
    #[error(
        "{file} is a pickle, which may run code when it is loaded; \
         save the model as safetensors (save_pretrained does) and give that directory"
    )]
    Pickle {
        /// One of the pickle files.
        file: String,
    },
    /// A file contradicts itself or ends too early.
    #[error("{file} is damaged: {detail}; copy or download the checkpoint again")]
    Damaged {
        /// The file.
        file: String,
        /// Where and how.
        detail: String,
    },
    /// A file was written or replaced while it was being used.
    #[error(
        "{file} changed while it was read; write checkpoints aside and rename them, and submit \
         the job anew"
    )]
    Changed {
        /// The file.
        file: String,
    },
    /// The configuration lacks a field or has an impossible value in it.
    #[error("{file}: field `{field}` {detail}; correct the configuration")]
    Configuration {
        /// The file.
        file: String,
        /// The field or metadata key.
        field: String,
        /// What is wrong with its value.
        detail: String,
    },
    /// No family of this architecture is built in.
    #[error("{file}: architecture `{architecture}` is not supported; supported are: {supported}")]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// What the file says.
        architecture: String,
        /// The architectures that are built in.
        supported: String,
    },
    /// The family is known, but the configuration asks for something the decoder does not do.
    #[error("{file}: `{field}` is {value}, which is not supported; {remedy}")]
    Unsupported {
        /// The file.
        file: String,
        /// The field or metadata key.
        field: String,
        /// Its value.
        value: String,
        /// What is supported.
        remedy: String,
    },
    /// A tensor the configuration asks for is not there.
    #[error("{file} lacks the tensor `{tensor}`, which the configuration asks for{hint}")]
    MissingTensor {
        /// The file or directory.
        file: String,
        /// The tensor.
        tensor: String,
        /// What to do about it, starting with a semicolon.
        hint: &'static str,
    },
    /// A tensor has no place in the architecture.
    #[error(
        "{file} has the tensor `{tensor}`, which this architecture does not use; \
         the configuration does not describe these weights"
    )]
    UnusedTensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
    },
    /// A tensor has another shape than the configuration says.
    #[error(
        "{file}: tensor `{tensor}` has shape {stored:?}, the configuration asks for {expected:?}; \
         the configuration does not describe these weights"
    )]
    WrongShape {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The shape in the file.
        stored: Vec<usize>,
        /// The shape that follows from the configuration.
        expected: Vec<usize>,
    },
    /// A tensor of an adapter has no place in its base.
    #[error(
        "{file} changes `{tensor}`, which this base ({family}) does not have; give the base that \
         the adapter was trained with"
    )]
    NoSuchModule {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The family of the base.
        family: &'static str,
    },
    /// An adapter was trained with a larger vocabulary.
    #[error(
        "{file}: tensor `{tensor}` has {rows} rows, the base has {expected}: tokens were added in \
         training; merge the adapter with PEFT and give the merged model"
    )]
    AddedTokens {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Rows in the file.
        rows: usize,
        /// Rows of the base.
        expected: usize,
    },
    /// A tensor of an adapter does not fit the weight it changes.
    #[error(
        "{file}: tensor `{tensor}` has shape {stored:?}, this base ({family}) needs {expected:?}; \
         the adapter belongs to another base"
    )]
    OtherBase {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The shape in the file.
        stored: Vec<usize>,
        /// The shape that follows from the base.
        expected: Vec<usize>,
        /// The family of the base.
        family: &'static str,
    },
    /// A tensor is stored in a format that is not supported.
    #[error(
        "{file}: tensor `{tensor}` is stored as {dtype}, which is not supported; \
         convert it to one of: {supported}"
    )]
    UnsupportedDtype {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its format.
        dtype: String,
        /// The formats that are supported in this kind of file.
        supported: &'static str,
    },
    /// The tokenizer is missing, damaged, or of a kind that is not supported.
    #[error("{file}: {detail}")]
    Tokenizer {
        /// The file.
        file: String,
        /// What is wrong and what to do.
        detail: String,
    },
    /// The tokenizer produces ids that the embedding has no row for.
    #[error(
        "{file}: the tokenizer's largest id is {largest}, but the embedding has {rows} rows; \
         the tokenizer belongs to another model"
    )]
    TokenizerTooLarge {
        /// The file of the tokenizer.
        file: String,
        /// The largest id of the tokenizer.
        largest: u32,
        /// Rows of the embedding.
        rows: usize,
    },
    /// The chat template cannot be used, whatever the messages.
    #[error("{file}: the chat template cannot be used: {detail}")]
    ChatTemplate {
        /// The file.
        file: String,
        /// What is wrong and what to do.
        detail: String,
    },
    /// The tokenizer has neither BOS nor EOS.
    #[error(
        "{file}: the tokenizer names neither a BOS nor an EOS token, and rolling needs one as \
         prefix; name one (tokenizer_config.json: `bos_token`)"
    )]
    NoPrefixToken {
        /// The file of the tokenizer.
        file: String,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::OutOfMemory => "give this program more memory",
        _ => "check that it exists and that this program may read it",
    }
}

impl CheckpointError {
    /// The code under which a client learns of it.
    pub fn code(&self) -> ErrorCode {
        match self {
            // A file is mapped, which fails where the address space is full.
            Self::Io { source, .. } if source.kind() == io::ErrorKind::OutOfMemory => {
                ErrorCode::OutOfMemory
            }
            Self::Io { .. }
            | Self::Changed { .. }
            | Self::NotACheckpoint { .. }
            | Self::Damaged { .. }
            | Self::Configuration { .. } => ErrorCode::CheckpointUnreadable,
            Self::Pickle { .. } => ErrorCode::PickleRefused,
            Self::UnknownArchitecture { .. } | Self::Unsupported { .. } => {
                ErrorCode::ArchitectureUnsupported
            }
            Self::MissingTensor { .. }
            | Self::UnusedTensor { .. }
            | Self::WrongShape { .. }
            | Self::NoSuchModule { .. }
            | Self::AddedTokens { .. }
            | Self::OtherBase { .. } => ErrorCode::TensorMismatch,
            Self::UnsupportedDtype { .. } => ErrorCode::DtypeUnsupported,
            Self::Tokenizer { .. } | Self::TokenizerTooLarge { .. } => ErrorCode::TokenizerUnusable,
            Self::ChatTemplate { .. } => ErrorCode::ChatTemplateUnusable,
            Self::NoPrefixToken { .. } => ErrorCode::NoPrefixToken,
        }
    }

    pub(crate) fn damaged(file: &str, detail: impl Into<String>) -> Self {
        Self::Damaged {
            file: file.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn tokenizer(file: &str, detail: impl Into<String>) -> Self {
        Self::Tokenizer {
            file: file.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn chat_template(file: &str, detail: impl Into<String>) -> Self {
        Self::ChatTemplate {
            file: file.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn io(file: &str, source: io::Error) -> Self {
        Self::Io {
            file: file.to_owned(),
            source,
        }
    }

    pub(crate) fn configuration(file: &str, field: &str, detail: impl Into<String>) -> Self {
        Self::Configuration {
            file: file.to_owned(),
            field: field.to_owned(),
            detail: detail.into(),
        }
    }

    pub(crate) fn unsupported(
        file: &str,
        field: &str,
        value: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            file: file.to_owned(),
            field: field.to_owned(),
            value: value.into(),
            remedy: remedy.into(),
        }
    }
}
