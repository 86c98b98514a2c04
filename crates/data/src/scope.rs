//! From a method and the tokens of a dataset to what a plan is made of.

use std::ops::Range;

use assay_api::{Bos, Convention as ConventionName, DatasetFormat, ErrorCode, Method, Tail};
use assay_checkpoint::{CheckpointError, TextTokenizer};
use assay_scoring::{Convention, Scope};

use crate::store::TokenStore;

/// Why a method does not go with a tokenizer.
#[derive(Debug, thiserror::Error)]
pub enum MethodError {
    /// A method that no server stores.
    #[error("`strided` takes a stride")]
    NoStride,
    /// There is no BOS to put in front.
    #[error("`\"bos\": \"always\"` needs a tokenizer with a BOS; this one names none")]
    NoBos,
    /// There is no token to put before a document.
    #[error(transparent)]
    NoPrefix(#[from] CheckpointError),
}

impl MethodError {
    /// The code under which it is reported.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoStride | Self::NoBos => ErrorCode::MethodInvalid,
            Self::NoPrefix(error) => error.code(),
        }
    }

    /// The field of the request at fault.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::NoStride => "method.stride",
            Self::NoBos => "method.bos",
            Self::NoPrefix(_) => "model",
        }
    }
}

/// The convention of a method, as the arithmetic takes it.
///
/// # Errors
/// `strided` without a stride.
pub fn convention(method: &Method) -> Result<Convention, MethodError> {
    let window = method.window;
    Ok(match method.convention {
        ConventionName::Rolling => Convention::Rolling { window },
        ConventionName::Blocks => Convention::Blocks {
            window,
            score_tail: method.tail == Some(Tail::Score),
        },
        ConventionName::Strided => Convention::Strided {
            window,
            stride: method.stride.ok_or(MethodError::NoStride)?,
        },
        ConventionName::Llamacpp => Convention::LlamaCpp { window },
    })
}

/// The token at index -1: the prefix of each document under `rolling`, the BOS in front of a
/// joined text. A chat brings its own.
///
/// # Errors
/// The tokenizer has no such token.
pub fn prefix(
    method: &Method,
    format: DatasetFormat,
    tokenizer: &TextTokenizer,
) -> Result<Option<u32>, MethodError> {
    if !method.convention.is_joined() {
        return match format {
            DatasetFormat::Chat => Ok(None),
            _ => Ok(Some(tokenizer.prefix()?)),
        };
    }
    match method.bos.unwrap_or_default() {
        Bos::Never => Ok(None),
        Bos::Auto if !tokenizer.adds_bos() => Ok(None),
        Bos::Auto | Bos::Always => match tokenizer.bos() {
            Some(bos) => Ok(Some(bos)),
            None => Err(MethodError::NoBos),
        },
    }
}

/// The numbers of a dataset's tokens that a plan under a method is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct RowScope {
    convention: Convention,
    lengths: Vec<u64>,
    counted: Option<Vec<Vec<Range<u64>>>>,
    has_prefix: bool,
}

impl RowScope {
    /// Of `tokens` under `method`, with the [`prefix`] that it puts in front, if any.
    ///
    /// # Errors
    /// `strided` without a stride.
    pub fn new(
        tokens: &TokenStore,
        method: &Method,
        prefix: Option<u32>,
    ) -> Result<Self, MethodError> {
        let documents = 0..tokens.documents();
        Ok(Self {
            convention: convention(method)?,
            lengths: documents.clone().map(|d| tokens.facts(d).tokens).collect(),
            counted: documents.map(|d| tokens.counted(d)).collect(),
            has_prefix: prefix.is_some(),
        })
    }

    /// What the plan takes.
    pub fn scope(&self) -> Scope<'_> {
        Scope {
            convention: self.convention,
            lengths: &self.lengths,
            prefix: self.has_prefix,
            counted: self.counted.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(convention: ConventionName) -> Method {
        Method {
            convention,
            ..Method::rolling(8)
        }
    }

    #[test]
    fn methods_become_conventions() {
        let (window, name) = (8, ConventionName::Strided);
        let strided = Method {
            stride: Some(3),
            ..method(name)
        };
        let scored = Method {
            tail: Some(Tail::Score),
            ..method(ConventionName::Blocks)
        };
        let blocks = |score_tail| Convention::Blocks { window, score_tail };
        for (method, expected) in [
            (
                method(ConventionName::Rolling),
                Convention::Rolling { window },
            ),
            (method(ConventionName::Blocks), blocks(false)),
            (scored, blocks(true)),
            (strided, Convention::Strided { window, stride: 3 }),
            (
                method(ConventionName::Llamacpp),
                Convention::LlamaCpp { window },
            ),
        ] {
            assert_eq!(convention(&method).unwrap(), expected);
        }
        let error = convention(&method(name)).unwrap_err();
        assert_eq!(
            (error.code(), error.field()),
            (ErrorCode::MethodInvalid, "method.stride")
        );
    }
}
