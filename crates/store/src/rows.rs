//! Conversions between rows and types.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

/// An enum label of the database as its type.
pub(crate) fn parse<T: DeserializeOwned>(label: String) -> Result<T, StoreError> {
    json(serde_json::Value::String(label))
}

/// A `jsonb` column as its type.
pub(crate) fn json<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, StoreError> {
    serde_json::from_value(value).map_err(|e| StoreError::Unexpected(e.to_string()))
}

/// A value for a `jsonb` column.
pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<serde_json::Value, StoreError> {
    serde_json::to_value(value).map_err(|e| StoreError::Unexpected(e.to_string()))
}

/// Longest text about an error, in characters. It may quote what a file holds, however long.
const MAX_DETAIL: usize = 2000;

/// A text as PostgreSQL takes it: with NUL, which it refuses, written `\0`.
pub(crate) fn storable(text: &str) -> String {
    text.replace('\0', "\\0")
}

/// A text about an error as PostgreSQL takes it, cut short. An error that cannot be stored would
/// end its worker instead of its job, and then the next worker.
pub(crate) fn detail(text: &str) -> String {
    let mut characters = text.chars();
    let mut stored: String = characters.by_ref().take(MAX_DETAIL).collect();
    if characters.next().is_some() {
        stored.push_str(" [..]");
    }
    storable(&stored)
}

/// A count of the database, which has no unsigned integers.
pub(crate) fn count<N: TryInto<u64> + Copy + std::fmt::Display>(n: N) -> Result<u64, StoreError> {
    n.try_into()
        .map_err(|_| StoreError::Unexpected(format!("negative count {n}")))
}

/// An index or count for a column of type `integer`.
pub(crate) fn int<N: TryInto<i32> + Copy + std::fmt::Display>(n: N) -> Result<i32, StoreError> {
    n.try_into()
        .map_err(|_| StoreError::Unexpected(format!("{n} does not fit an integer column")))
}

/// An index of the database, which has no unsigned integers.
pub(crate) fn index_of(value: i32) -> Result<u32, StoreError> {
    value
        .try_into()
        .map_err(|_| StoreError::Unexpected(format!("negative index {value}")))
}

/// A token's id of the database.
pub(crate) fn token(id: i64) -> Result<u32, StoreError> {
    id.try_into()
        .map_err(|_| StoreError::Unexpected(format!("token id {id}")))
}

/// A count for a column of type `bigint`.
pub(crate) fn bigint(n: u64) -> Result<i64, StoreError> {
    n.try_into()
        .map_err(|_| StoreError::Unexpected(format!("{n} does not fit a bigint column")))
}
