//! A dataset under one method, with its tokens: what both planning and running start from.

use assay_api::{Convention as ConventionName, Method};
use assay_data::{MethodError, TokenStore};
use assay_scoring::Window;

use crate::failure::Failure;

impl From<MethodError> for Failure {
    fn from(error: MethodError) -> Self {
        match error {
            MethodError::NoPrefix(error) => error.into(),
            MethodError::NoStride | MethodError::NoBos => {
                Self::fatal(error.code(), error.to_string()).of_field(error.field())
            }
        }
    }
}

/// The tokens of a dataset as the windows of a method address them.
#[derive(Debug)]
pub(crate) struct Row {
    /// The tokens.
    pub(crate) tokens: TokenStore,
    /// Whether the documents form one stream.
    pub(crate) is_joined: bool,
    /// The token at index -1.
    pub(crate) prefix: Option<u32>,
    /// Whether that token overwrites the first of each window, as in `llamacpp`.
    pub(crate) overwrites: bool,
}

impl Row {
    /// `tokens` under `method`.
    pub(crate) fn new(tokens: TokenStore, method: &Method, prefix: Option<u32>) -> Self {
        Self {
            tokens,
            is_joined: method.convention.is_joined(),
            prefix,
            overwrites: method.convention == ConventionName::Llamacpp && prefix.is_some(),
        }
    }

    /// The ids of the stream that a window is cut from.
    pub(crate) fn stream(&self, stream: u32) -> &[u32] {
        if self.is_joined {
            self.tokens.stream()
        } else {
            self.tokens.ids(u64::from(stream))
        }
    }

    /// Where a token of a stream lies in the token store.
    pub(crate) fn stored(&self, stream: u32, token: u64) -> u64 {
        if self.is_joined {
            token
        } else {
            self.tokens.start(u64::from(stream)) + token
        }
    }

    /// The document that a token of a stream belongs to.
    pub(crate) fn owner(&self, stream: u32, token: u64) -> u32 {
        if self.is_joined {
            u32::try_from(self.tokens.owner(token)).unwrap_or(u32::MAX)
        } else {
            stream
        }
    }

    /// The targets of a window that count, in order.
    pub(crate) fn counted(&self, window: &Window) -> impl Iterator<Item = u64> {
        let stream = window.document;
        (window.from..window.to)
            .filter(move |&token| self.tokens.is_counted(self.stored(stream, token)))
    }

    /// The input ids of a window. None if it does not fit its stream.
    pub(crate) fn input(&self, window: &Window) -> Option<Vec<u32>> {
        let ids = self.stream(window.document);
        let end = usize::try_from(window.start.checked_add(i64::from(window.len))?).ok()?;
        let mut input = match usize::try_from(window.start) {
            Ok(start) => ids.get(start..end)?.to_vec(),
            Err(_) => std::iter::once(self.prefix?)
                .chain(ids.get(..end)?.iter().copied())
                .collect(),
        };
        if self.overwrites {
            *input.first_mut()? = self.prefix?;
        }
        Some(input)
    }
}
