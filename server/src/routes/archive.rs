//! A job as one file.

use assay_api::ErrorCode;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use tokio_util::io::ReaderStream;

use super::{FileBytes, no_such_job};
use crate::access::Caller;
use crate::app::AppState;
use crate::archive;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfArchive;

/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Get the archive of a job
///
/// A ZIP file with all there is of a job that has ended: `job.json` and `result.json` as
/// `GET /jobs/{id}` and `GET /jobs/{id}/results` answer them, and for each dataset under each
/// method `documents/NN-name.parquet`, `NN` counting the `datasets` of the result from 0. Jobs
/// with `"token_output": true` have `tokens/NN-name.parquet` too. Datasets that did not come to
/// an end have no such files.
#[utoipa::path(
    get,
    path = "/jobs/{id}/archive",
    operation_id = "get_archive",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses(
        (status = 200, description = "The archive.", content_type = "application/zip",
            body = inline(FileBytes)),
        OfArchive,
    ),
)]
pub(crate) async fn get(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, ApiError> {
    let job = caller
        .ledger
        .job(id)
        .await?
        .ok_or_else(|| no_such_job(id))?;
    if !job.state.is_final() {
        return Err(ApiError::new(
            ErrorCode::JobNotEnded,
            format!(
                "job {id} is {}; its archive can be had once it has ended, GET /jobs/{id}/results \
                 has what is known so far",
                job.state.as_str()
            ),
        ));
    }
    let result = caller
        .ledger
        .result(id)
        .await?
        .ok_or_else(|| no_such_job(id))?;
    let (ledger, dir) = (caller.ledger, state.scratch);
    let file = state
        .heavy
        .run(move |cancelled| archive::write(&ledger, &dir, &job, &result, cancelled))
        .await?;
    let length = file
        .metadata()
        .map_err(|error| ApiError::Internal(format!("cannot read the archive: {error}")))?
        .len();
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK);
    let headers = [
        (CONTENT_TYPE, "application/zip".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"assay-{id}.zip\""),
        ),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}
