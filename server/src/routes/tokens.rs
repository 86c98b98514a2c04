//! The tokens of one document.

use assay_api::{ErrorCode, Page, TokenRow};
use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{no_such_job, row_of};
use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfJobList;
use crate::query::{Cursor, Index, Limit, Query, present};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TokensQuery {
    /// Name of the dataset, as the job has it.
    dataset: String,
    /// Index of the document in the dataset, from 0.
    #[param(value_type = u64)]
    document: Index,
    /// Which of the job's methods, from 0.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<u32>, default = 0)]
    method: Option<Index>,
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Index>>,
    /// Tokens of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10000, default = 100)]
    limit: Limit<10_000>,
}

/// List the tokens of a document
///
/// Each token that some window predicts, with its NLL, of a job that was posted with
/// `"token_output": true`. The list is empty until every document of the dataset is counted.
#[utoipa::path(
    get,
    path = "/jobs/{id}/tokens",
    operation_id = "list_tokens",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job."), TokensQuery),
    responses(
        (status = 200, description = "A page of tokens.", body = Page<TokenRow>),
        OfJobList,
    ),
)]
pub(crate) async fn list(
    caller: Caller,
    JobPath(id): JobPath,
    Query(query): Query<TokensQuery>,
) -> Result<Json<Page<TokenRow>>, ApiError> {
    let job = caller
        .ledger
        .job(id)
        .await?
        .ok_or_else(|| no_such_job(id))?;
    let row = row_of(&job, &query.dataset, query.method.unwrap_or_default())?;
    if !job.token_output {
        return Err(ApiError::new(
            ErrorCode::NotFound,
            format!(
                "job {id} keeps no numbers of tokens; post it again with \"token_output\": true"
            ),
        ));
    }
    let Index(from) = query.cursor.map_or_else(Index::default, |cursor| cursor.0);
    let document = u64::from(query.document.0);
    let rows = caller
        .ledger
        .tokens(id, row, document, from.into(), query.limit.rows())
        .await?;
    // No rows: a page past the end, a row that has not ended, or no such document.
    if rows.is_empty() && !is_document(&caller, id, row, document).await? {
        return Err(ApiError::of_field(
            ErrorCode::NotFound,
            "document",
            format!(
                "{document} is not the index of a document of {:?}; GET /jobs/{id}/documents \
                 lists them",
                query.dataset
            ),
        ));
    }
    Ok(Json(query.limit.page(rows, |last| last.index + 1)))
}

/// Whether a row that has ended has this document; of any other row nothing is known yet.
async fn is_document(
    caller: &Caller,
    id: assay_api::JobId,
    row: u32,
    document: u64,
) -> Result<bool, ApiError> {
    let has_ended = !caller.ledger.documents(id, row, 0, 1).await?.is_empty();
    Ok(!has_ended
        || !caller
            .ledger
            .documents(id, row, document, 1)
            .await?
            .is_empty())
}
