//! Typed access to the metadata of a GGUF file.

use std::collections::BTreeMap;

use super::header::{self, Value};
use crate::CheckpointError;

/// The metadata, with what errors about it need.
pub(crate) struct Keys<'a> {
    pub(super) file: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) metadata: &'a BTreeMap<String, Value>,
}

impl<'a> Keys<'a> {
    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        let wrong = || CheckpointError::configuration(self.file, key, format!("must be {wanted}"));
        read(value).ok_or_else(wrong).map(Some)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.typed(key, "a text", |value| match value {
            Value::Text(range) => std::str::from_utf8(&self.bytes[range.clone()]).ok(),
            _ => None,
        })
    }

    pub(super) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, CheckpointError> {
        self.typed(key, "an array of texts", |value| {
            header::texts(self.bytes, value)
        })
    }

    pub(super) fn integers(&self, key: &str) -> Result<Option<Vec<i128>>, CheckpointError> {
        self.typed(key, "an array of integers", |value| {
            header::integers(self.bytes, value)
        })
    }

    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, CheckpointError> {
        self.typed(key, "an array of numbers", |value| {
            header::numbers(self.bytes, value)
        })
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(key, "true or false", |value| match value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    pub(super) fn integer(&self, key: &str) -> Result<Option<i128>, CheckpointError> {
        self.typed(key, "an integer", |value| match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        })
    }

    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(key, "a positive number", |value| match value {
            Value::Float(number) => {
                Some(*number).filter(|number| number.is_finite() && *number > 0.0)
            }
            _ => None,
        })
    }

    pub(super) fn size(&self, key: &str, most: u64) -> Result<Option<usize>, CheckpointError> {
        self.typed(
            key,
            &format!("an integer from 1 to {most}"),
            |value| match value {
                Value::Integer(number) if (1..=i128::from(most)).contains(number) => {
                    usize::try_from(*number).ok()
                }
                _ => None,
            },
        )
    }

    pub(super) fn missing(&self, key: &str) -> CheckpointError {
        CheckpointError::configuration(self.file, key, "is missing")
    }
}
