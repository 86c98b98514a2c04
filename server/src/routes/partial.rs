//! The numbers of a job that has not ended.

use assay_api::PartialResult;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::no_such_job;
use crate::access::Caller;
use crate::app::AppState;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfJob;

/// Get the numbers of what is counted so far
///
/// For each dataset under each method the sum over the tokens that are counted, their mean, its
/// error, and how these have changed as more was counted. It is no estimate of the end: shards are
/// counted in about the order of the plan, the largest first, and the error says nothing of the
/// tokens that are missing. When all are counted the numbers are those of
/// `GET /jobs/{id}/results`, to the bit. Answers are computed every two seconds at most, and seldom
/// enough for a job with many documents that it takes a twentieth of the time; `at` says of when
/// they are.
#[utoipa::path(
    get,
    path = "/jobs/{id}/partial",
    operation_id = "get_partial",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses(
        (status = 200, description = "The numbers so far.", body = PartialResult),
        OfJob,
    ),
)]
pub(crate) async fn get(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Response, ApiError> {
    let ledger = &caller.ledger;
    let job = ledger.job(id).await?.ok_or_else(|| no_such_job(id))?;
    let partial = state.partials.get(ledger, id, job.state).await?;
    let partial = partial.ok_or_else(|| no_such_job(id))?;
    Ok(Json(&*partial).into_response())
}
