//! What lies below the roots, to choose from.

use assay_api::{ErrorCode, FileEntry, FileKind, ModelEntry, ModelFormat, ModelKind, Page};
use assay_data::{Entry, PathError, Root, is_dataset};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::AppState;
use crate::error::ApiError;
use crate::problems::{OfFiles, OfModels};
use crate::query::{Cursor, Limit, Query, present};

/// The files that make a directory a checkpoint or an adapter, and what each holds then.
const MARKS: [(&str, ModelKind); 2] = [
    ("config.json", ModelKind::Checkpoint),
    ("adapter_config.json", ModelKind::Adapter),
];
/// Files of weights that the size of a checkpoint is of.
const MAX_WEIGHTS: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilesQuery {
    /// `path` of a directory; the root itself if left out.
    #[serde(default, deserialize_with = "present")]
    #[param(example = "web")]
    under: Option<String>,
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<String>>,
    /// Entries of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

impl FilesQuery {
    /// The page of those entries that `of` makes something of.
    async fn page<T: Send + 'static>(
        self,
        root: Root,
        unreadable: ErrorCode,
        takes: fn(&str) -> bool,
        of: fn(&Root, Entry) -> T,
    ) -> Result<Json<Page<T>>, ApiError> {
        let Self {
            under,
            cursor,
            limit,
        } = self;
        let under = under.filter(|under| !under.is_empty());
        let under = under.unwrap_or_else(|| ".".to_owned());
        let after = cursor.map(|cursor| cursor.0);
        tokio::task::spawn_blocking(move || {
            let rows = limit.rows() as usize;
            let entries = root
                .list(&under, after.as_deref(), rows, takes)
                .map_err(|error| refusal(&error, unreadable))?;
            let Page { items, next } = limit.page(entries, |last| last.name.clone());
            let items = items.into_iter().map(|entry| of(&root, entry)).collect();
            Ok(Json(Page { items, next }))
        })
        .await?
    }
}

fn refusal(error: &PathError, unreadable: ErrorCode) -> ApiError {
    ApiError::of_field(error.code(unreadable), "under", error.to_string())
}

/// List checkpoints
///
/// What lies directly in a directory below the model root, ordered by name: directories, checkpoints
/// and adapters. A directory is called a checkpoint or an adapter by the names of the files in it;
/// whether it can be scored says `GET /models/inspect`. Hidden names and links that lead out of
/// the root are left out.
#[utoipa::path(
    get,
    path = "/models",
    operation_id = "list_models",
    tag = "models",
    params(FilesQuery),
    responses(
        (status = 200, description = "A page of what is in the directory.", body = Page<ModelEntry>),
        OfModels,
    ),
)]
pub(crate) async fn models(
    State(state): State<AppState>,
    Query(query): Query<FilesQuery>,
) -> Result<Json<Page<ModelEntry>>, ApiError> {
    let unreadable = ErrorCode::CheckpointUnreadable;
    query.page(state.models, unreadable, is_gguf, model).await
}

/// List dataset files
///
/// What lies directly in a directory below the data root, ordered by name: directories, and the
/// files that are read as datasets, which their names tell: `.txt`, `.jsonl`, `.ndjson` and
/// `.parquet`, also with `.gz` or `.zst`. Hidden names and links that lead out of the root are left
/// out. Uploads are listed by `GET /datasets`.
#[utoipa::path(
    get,
    path = "/files",
    operation_id = "list_files",
    tag = "datasets",
    params(FilesQuery),
    responses(
        (status = 200, description = "A page of what is in the directory.", body = Page<FileEntry>),
        OfFiles,
    ),
)]
pub(crate) async fn datasets(
    State(state): State<AppState>,
    Query(query): Query<FilesQuery>,
) -> Result<Json<Page<FileEntry>>, ApiError> {
    let unreadable = ErrorCode::DatasetUnreadable;
    query.page(state.data, unreadable, is_dataset, file).await
}

fn file(_: &Root, entry: Entry) -> FileEntry {
    FileEntry {
        name: entry.name,
        path: entry.path,
        kind: match entry.bytes {
            None => FileKind::Directory,
            Some(_) => FileKind::Dataset,
        },
        bytes: entry.bytes,
    }
}

fn model(root: &Root, entry: Entry) -> ModelEntry {
    let (kind, format, bytes) = if entry.bytes.is_some() {
        (ModelKind::Checkpoint, Some(ModelFormat::Gguf), entry.bytes)
    } else if let Some((kind, bytes)) = weights(root, &entry.path) {
        (kind, Some(ModelFormat::Safetensors), Some(bytes))
    } else {
        (ModelKind::Directory, None, None)
    };
    ModelEntry {
        name: entry.name,
        path: entry.path,
        kind,
        format,
        bytes,
    }
}

/// What a directory with weights is, and their bytes. None of a directory without, and of one that
/// cannot be read or has too many entries to be a checkpoint.
fn weights(root: &Root, directory: &str) -> Option<(ModelKind, u64)> {
    // The one look-up of most directories, before their entries are.
    let has = |name: &str| root.file(&format!("{directory}/{name}")).is_ok();
    let (_, kind) = MARKS.into_iter().find(|(name, _)| has(name))?;
    let entries = root
        .list(directory, None, MAX_WEIGHTS, is_safetensors)
        .ok()?;
    let sizes: Vec<u64> = entries.into_iter().filter_map(|e| e.bytes).collect();
    (!sizes.is_empty()).then(|| (kind, sizes.iter().sum()))
}

fn is_safetensors(name: &str) -> bool {
    has_suffix(name, "safetensors")
}

fn is_gguf(name: &str) -> bool {
    has_suffix(name, "gguf")
}

fn has_suffix(name: &str, suffix: &str) -> bool {
    let extension = std::path::Path::new(name).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case(suffix))
}
