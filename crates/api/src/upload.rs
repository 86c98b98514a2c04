//! Uploaded datasets.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A dataset that was uploaded.
///
/// The name stands for the latest upload under it; a job keeps the one it was posted with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Upload {
    /// The name, whose ending tells the format like that of a file.
    pub name: String,
    /// `sha256:` of its bytes.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
    /// When it was uploaded.
    pub created_at: DateTime<Utc>,
}
