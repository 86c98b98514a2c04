//! What there is to choose from below the roots.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an entry of `GET /models` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// A directory to look into.
    Directory,
    /// A checkpoint, as far as its names tell: `GET /models/inspect` says whether it is one.
    Checkpoint,
    /// A LoRA adapter, likewise.
    Adapter,
}

/// How a checkpoint is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ModelFormat {
    /// A Hugging Face directory.
    Safetensors,
    /// One file.
    Gguf,
}

/// One row of `GET /models`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ModelEntry {
    /// Its name in the directory.
    pub name: String,
    /// Its path below the model root: what a job names it by, and `under` of what is in it.
    pub path: String,
    /// What it is.
    pub kind: ModelKind,
    /// How it is stored; null of a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<ModelFormat>,
    /// Bytes of its weights; null of a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What an entry of `GET /files` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A directory to look into. As a dataset it is all datasets below it.
    Directory,
    /// A file that is read as a dataset, by its name.
    Dataset,
}

/// One row of `GET /files`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// Its path below the data root: what a job names it by, and `under` of what is in it.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes of the file, as it is stored; null of a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
