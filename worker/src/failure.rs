//! Errors of the worker as the ledger records them.

use assay_api::ErrorCode;
use assay_checkpoint::CheckpointError;
use assay_data::{DataError, SourceError};
use assay_decoder::DecoderError;
use assay_store::AttemptFailure;

/// Why an attempt could not be completed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The attempt has ended in the ledger or the worker stops: give it back.
    Stopped,
    /// An error, to be recorded.
    Error {
        /// The code.
        code: ErrorCode,
        /// What happened and what to do about it.
        detail: String,
        /// The field of the request at fault, if one is.
        field: Option<String>,
        /// Another attempt would end the same way.
        is_final: bool,
        /// This process can compute nothing more.
        is_lasting: bool,
    },
}

impl Failure {
    /// An error that another worker, or another try, may not meet.
    pub(crate) fn error(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self::Error {
            code,
            detail: detail.into(),
            field: None,
            is_final: false,
            is_lasting: false,
        }
    }

    /// An error that every attempt would meet.
    pub(crate) fn fatal(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self::Error {
            code,
            detail: detail.into(),
            field: None,
            is_final: true,
            is_lasting: false,
        }
    }

    /// An error about a file: final if it follows from the file's content.
    pub(crate) fn of_file(code: ErrorCode, error: &impl std::fmt::Display) -> Self {
        Self::Error {
            code,
            detail: error.to_string(),
            field: None,
            is_final: follows_from_content(code),
            is_lasting: false,
        }
    }

    /// Whether there was too little memory, and less would do.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::Error {
                code: ErrorCode::OutOfMemory,
                is_lasting: false,
                ..
            }
        )
    }

    /// Whether this process can compute nothing more.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Error {
                is_lasting: true,
                ..
            }
        )
    }

    /// Names the field of the request at fault.
    #[must_use]
    pub(crate) fn of_field(mut self, name: impl Into<String>) -> Self {
        if let Self::Error { field, .. } = &mut self {
            *field = Some(name.into());
        }
        self
    }

    /// Names the field of the request at fault, unless a nearer one is named already.
    #[must_use]
    pub(crate) fn of_missing_field(mut self, name: impl Into<String>) -> Self {
        if let Self::Error { field, .. } = &mut self {
            field.get_or_insert_with(|| name.into());
        }
        self
    }

    /// The failure as the ledger takes it, after `computed_tokens`. None if it was just stopped.
    pub(crate) fn record(self, computed_tokens: u64) -> Option<AttemptFailure> {
        match self {
            Self::Stopped => None,
            Self::Error {
                code,
                detail,
                field,
                is_final,
                is_lasting: _,
            } => Some(AttemptFailure {
                code,
                detail,
                field,
                is_final,
                computed_tokens,
            }),
        }
    }
}

/// A file that cannot be read here may be readable on another node, and that node may have more
/// memory; everything else follows from the file's content, which digests pin.
fn follows_from_content(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::CheckpointUnreadable
            | ErrorCode::DatasetUnreadable
            | ErrorCode::OutOfMemory
            | ErrorCode::Internal
    )
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        Self::of_file(error.code(), &error).of_field("model")
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::of_file(error.code(), &error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::of_file(error.code(), &error)
    }
}

impl From<DecoderError> for Failure {
    fn from(error: DecoderError) -> Self {
        Self::Error {
            code: error.code(),
            detail: error.to_string(),
            field: None,
            is_final: false,
            is_lasting: matches!(error, DecoderError::Broken(_)),
        }
    }
}
