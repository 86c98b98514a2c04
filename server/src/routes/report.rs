//! A job as a page.

use assay_api::ErrorCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::no_such_job;
use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfReport;
use crate::report::Facts;

/// The page is one file: nothing is loaded and nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'self'";

/// Get the report of a job
///
/// One HTML file for people, without scripts and without anything to load: results, error bars, how
/// the documents are spread and which are the worst, groups, speed, what the gate says, warnings,
/// what all that was made from and how to make it again. Of a job that has ended.
#[utoipa::path(
    get,
    path = "/jobs/{id}/report",
    operation_id = "get_report",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses(
        (status = 200, description = "The report.", content_type = "text/html", body = String),
        OfReport,
    ),
)]
pub(crate) async fn get(caller: Caller, JobPath(id): JobPath) -> Result<Response, ApiError> {
    let ledger = &caller.ledger;
    let job = ledger.job(id).await?.ok_or_else(|| no_such_job(id))?;
    if !job.state.is_final() {
        return Err(ApiError::new(
            ErrorCode::JobNotEnded,
            format!(
                "job {id} is {}; its report can be had once it has ended, GET /jobs/{id}/partial \
                 has the numbers of what is counted so far",
                job.state.as_str()
            ),
        ));
    }
    let result = ledger.result(id).await?;
    let result = result.ok_or_else(|| no_such_job(id))?;
    let facts = Box::pin(Facts::read(ledger, job, result)).await?;
    let page = tokio::task::spawn_blocking(move || facts.render()).await?;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
        (CONTENT_SECURITY_POLICY, POLICY.to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("inline; filename=\"assay-{id}.html\""),
        ),
    ];
    Ok((headers, page).into_response())
}
