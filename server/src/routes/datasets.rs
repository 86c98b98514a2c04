//! Uploaded datasets, and what can be said of a dataset without scoring it.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::atomic::Ordering;

use assay_api::{DatasetInspection, DatasetInspectionRequest, ErrorCode, ModelRef, Page, Upload};
use assay_data::{DataError, Source};
use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use super::FileBytes;
use crate::access::Caller;
use crate::app::AppState;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::problems::{OfInspection, OfList, OfUpload, OfUploadName};
use crate::query::{Cursor, Limit, Query, present};
use crate::receive::{Incoming, SILENCE};
use crate::remote::Named;
use crate::uploads;
use crate::validate::{Grounds, resolve_inspection};

/// The name of an uploaded dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadName(pub(crate) String);

impl FromStr for UploadName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let sound = (1..=128).contains(&name.len())
            && name.as_bytes()[0].is_ascii_alphanumeric()
            && name.as_bytes().iter().all(plain);
        if sound {
            return Ok(Self(name.to_owned()));
        }
        Err(format!(
            "{name:?} is not a name of an uploaded dataset; those are 1 to 128 ASCII letters, \
             digits, `.`, `_` or `-`, the first a letter or digit"
        ))
    }
}

/// The `{name}` of an upload, or why it is none.
pub(crate) struct UploadPath(Result<UploadName, String>);

impl<S: Send + Sync> FromRequestParts<S> for UploadPath {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        // Bytes that are not UTF-8 are no name either.
        Ok(Self(path.map_or_else(
            |_| "\u{fffd}".parse(),
            |Path(name)| name.parse(),
        )))
    }
}

/// Upload a dataset
///
/// The body is the file as it is; its name tells the format like that of a file (`.jsonl`,
/// `.parquet`, `.gz` and `.zst` behind, else text). Jobs take it as `{"upload": "name"}`. A name
/// may be uploaded to again: it then stands for the new bytes, and jobs that were posted before
/// keep theirs. What breaks off or does not fit on the disk leaves nothing behind.
#[utoipa::path(
    put,
    path = "/datasets/{name}",
    operation_id = "upload_dataset",
    tag = "datasets",
    params(("name" = String, Path,
        description = "1 to 128 ASCII letters, digits, `.`, `_` or `-`, the first a letter or \
            digit.",
        example = "questions.jsonl.gz",
    )),
    request_body(
        content = inline(FileBytes),
        content_type = "application/octet-stream",
        description = "The bytes of the file, not a form. At most the server's `--upload-limit`.",
    ),
    responses(
        (status = 201, description = "A new name.", body = Upload),
        (status = 200, description = "The name stood for another upload before.", body = Upload),
        OfUpload,
    ),
)]
pub(crate) async fn put(
    State(state): State<AppState>,
    caller: Caller,
    UploadPath(name): UploadPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let UploadName(name) =
        name.map_err(|detail| ApiError::of_field(ErrorCode::InvalidRequest, "name", detail))?;
    require_plain(&headers)?;
    let mut incoming = Incoming {
        body,
        limit: state.upload_limit,
        silence: SILENCE,
        awaits_leave: headers.contains_key(EXPECT),
    };
    if let Some(length) = incoming.declared()
        && length <= state.upload_limit
        && let Err(error) = state.files.has_room(length)
    {
        incoming.drain().await;
        return Err(error);
    }
    let _turn = state.files.turn().await?;
    let files = state.files.clone();
    let limit = state.upload_limit;
    let stored = incoming
        .receive(move |received| files.store(received, limit))
        .await?
        .map_err(uploads::refusal)?;
    if stored.upload.bytes == 0 {
        let digest = &stored.upload.digest;
        state
            .files
            .remove_unused(&caller.ledger.upload_files(), digest)
            .await;
        return Err(ApiError::of_field(
            ErrorCode::InvalidRequest,
            "body",
            "is empty; send the file as the body, with curl by `-T FILE`",
        ));
    }
    // On a task of its own, so that it is not cut off between the name and the file.
    let naming = {
        let (name, state) = (name.clone(), state.clone());
        async move { state.files.name(&caller.ledger, &name, stored).await }
    };
    let put = tokio::spawn(naming).await??;
    let status = match put.replaced {
        None => StatusCode::CREATED,
        Some(_) => StatusCode::OK,
    };
    let location = [(LOCATION, format!("/datasets/{name}"))];
    Ok((status, location, Json(put.upload)).into_response())
}

/// Refuses bodies that are not the file itself.
fn require_plain(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let refused = |detail: String| Err(ApiError::new(ErrorCode::UnsupportedMediaType, detail));
    match text(CONTENT_TYPE) {
        Some(kind) if kind.to_ascii_lowercase().starts_with("multipart/") => {
            return refused(format!(
                "the body is a form ({kind}); send the file as it is, with curl by `-T FILE` \
                 instead of `-F`"
            ));
        }
        _ => (),
    }
    match text(CONTENT_ENCODING) {
        None | Some("identity") => Ok(()),
        Some(encoding) => refused(format!(
            "the body has the Content-Encoding {encoding:?}, which is not undone; leave the \
             header out, and let the name of a compressed file end in `.gz` or `.zst`"
        )),
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DatasetsQuery {
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<UploadName>>,
    /// Uploads of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

/// List uploaded datasets
///
/// By name. Datasets below the data root are not listed.
#[utoipa::path(
    get,
    path = "/datasets",
    operation_id = "list_datasets",
    tag = "datasets",
    params(DatasetsQuery),
    responses((status = 200, description = "A page of uploads.", body = Page<Upload>), OfList),
)]
pub(crate) async fn list(
    caller: Caller,
    Query(query): Query<DatasetsQuery>,
) -> Result<Json<Page<Upload>>, ApiError> {
    let after = query.cursor.map(|cursor| cursor.0.0);
    let rows = caller
        .ledger
        .uploads(after.as_deref(), query.limit.rows())
        .await?;
    Ok(Json(query.limit.page(rows, |last| last.name.clone())))
}

/// Get an uploaded dataset
///
/// Its size and digest, not its bytes.
#[utoipa::path(
    get,
    path = "/datasets/{name}",
    operation_id = "get_dataset",
    tag = "datasets",
    params(("name" = String, Path, description = "Name of the upload.")),
    responses((status = 200, description = "The upload.", body = Upload), OfUploadName),
)]
pub(crate) async fn get(
    caller: Caller,
    UploadPath(name): UploadPath,
) -> Result<Json<Upload>, ApiError> {
    let UploadName(name) = name.map_err(not_found)?;
    let found = caller.ledger.upload(&name).await?;
    found.map(Json).ok_or_else(|| no_such_upload(&name))
}

/// Delete an uploaded dataset
///
/// Removes the name; the bytes go as soon as no other name and no job that has not ended needs
/// them. Jobs that were posted with it run on, and results stay.
#[utoipa::path(
    delete,
    path = "/datasets/{name}",
    operation_id = "delete_dataset",
    tag = "datasets",
    params(("name" = String, Path, description = "Name of the upload.")),
    responses((status = 200, description = "What the name stood for.", body = Upload), OfUploadName),
)]
pub(crate) async fn delete(
    State(state): State<AppState>,
    caller: Caller,
    UploadPath(name): UploadPath,
) -> Result<Json<Upload>, ApiError> {
    let UploadName(name) = name.map_err(not_found)?;
    let removed = caller.ledger.delete_upload(&name).await?;
    let upload = removed.ok_or_else(|| no_such_upload(&name))?;
    state
        .files
        .remove_unused(&caller.ledger.upload_files(), &upload.digest)
        .await;
    Ok(Json(upload))
}

fn no_such_upload(name: &str) -> ApiError {
    not_found(format!(
        "there is no uploaded dataset {name:?}; GET /datasets lists them"
    ))
}

fn not_found(detail: String) -> ApiError {
    ApiError::new(ErrorCode::NotFound, detail)
}

/// Inspect a dataset
///
/// Reads it as a job would and counts documents, bytes, words and, with the tokenizer of a
/// checkpoint, tokens; scores nothing. The first record that is not what the format asks for is
/// named. Takes as long as reading and tokenizing do, 10 minutes at most; a `sample` or a limit
/// shortens it.
#[utoipa::path(
    post,
    path = "/datasets/inspect",
    operation_id = "inspect_dataset",
    tag = "datasets",
    request_body(
        content = DatasetInspectionRequest,
        description = "A dataset as in a job, and a checkpoint for its tokenizer.",
        example = json!({
            "dataset": { "path": "questions.jsonl", "group_by": "subject" },
            "model": "SmolLM2-135M-Instruct.Q4_1.gguf"
        }),
    ),
    responses(
        (status = 200, description = "What is in it.", body = DatasetInspection),
        OfInspection,
    ),
)]
pub(crate) async fn inspect(
    State(state): State<AppState>,
    caller: Caller,
    JsonBody {
        typed: mut request, ..
    }: JsonBody<DatasetInspectionRequest>,
) -> Result<Json<DatasetInspection>, ApiError> {
    let mut model = request.model.take().map(ModelRef::of);
    let grounds = state
        .grounds(
            &caller.ledger,
            Named {
                model: model.as_mut(),
                datasets: std::slice::from_mut(&mut request.dataset),
                reads_datasets: true,
            },
        )
        .await?;
    request.model = model.map(|model| model.path);
    let digests = state.digests.clone();
    let inspection = state
        .heavy
        .run(move |cancelled| {
            let found = resolve_inspection(&grounds, &request)?;
            let Grounds { data, uploads, .. } = &grounds;
            let fetched = &grounds.remote.fetched;
            let source =
                Source::resolve(&found.dataset, data, fetched, uploads).map_err(|error| {
                    let field = format!("dataset.{}", error.field());
                    ApiError::of_field(error.code(), field, error.to_string())
                })?;
            assay_data::inspect(
                &source,
                found.tokenizer.as_ref(),
                found.chat.as_ref(),
                &digests,
                &|| cancelled.load(Ordering::Relaxed),
            )
            .map_err(|error| data_error(&error))
        })
        .await?;
    Ok(Json(inspection))
}

/// What is wrong with a dataset is the caller's to mend; what is wrong with the cache is not.
fn data_error(error: &DataError) -> ApiError {
    match error.code() {
        ErrorCode::Internal => ApiError::Internal(error.to_string()),
        code => ApiError::of_field(code, "dataset", error.to_string()),
    }
}
