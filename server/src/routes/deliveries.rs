//! What became of telling the end of a job to its webhook.

use assay_api::{Delivery, ErrorCode, JobId, Page};
use axum::Json;
use axum::extract::Path;

use super::no_such_job;
use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfJob;

/// List the deliveries of a job
///
/// What was sent to the `webhook` of the job, and what came of each attempt. Empty until the job
/// has ended, and if it has no webhook.
#[utoipa::path(
    get,
    path = "/jobs/{id}/deliveries",
    operation_id = "list_deliveries",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses((status = 200, description = "All deliveries.", body = Page<Delivery>), OfJob),
)]
pub(crate) async fn list(
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Json<Page<Delivery>>, ApiError> {
    let items = caller.ledger.deliveries(id).await?;
    if items.is_empty() && caller.ledger.job(id).await?.is_none() {
        return Err(no_such_job(id));
    }
    Ok(Json(Page { items, next: None }))
}

/// Send a delivery again
///
/// At once, whether it was delivered, has failed or waits for its next try, and with all its tries
/// before it. It keeps its `webhook-id`. One that is being sent is left alone.
#[utoipa::path(
    post,
    path = "/jobs/{id}/deliveries/{number}/retry",
    operation_id = "retry_delivery",
    tag = "jobs",
    params(
        ("id" = Uuid, Path, description = "Id of the job."),
        ("number" = u32, Path, description = "Number of the delivery."),
    ),
    responses((status = 200, description = "The delivery, which is due.", body = Delivery), OfJob),
)]
pub(crate) async fn retry(
    caller: Caller,
    Path((id, number)): Path<(String, String)>,
) -> Result<Json<Delivery>, ApiError> {
    let none = || {
        ApiError::new(
            ErrorCode::NotFound,
            "there is no such delivery; GET /jobs/{id}/deliveries lists those of a job",
        )
    };
    let id: JobId = id.parse().map_err(|_| none())?;
    let number: u32 = number.parse().map_err(|_| none())?;
    if !caller.ledger.retry_delivery(id, number, None).await? {
        return Err(none());
    }
    let deliveries = caller.ledger.deliveries(id).await?;
    let delivery = deliveries.into_iter().find(|one| one.number == number);
    delivery.map(Json).ok_or_else(none)
}
