//! The documents of a job's datasets.

use assay_api::{DocumentRow, ErrorCode, Job, Page};
use axum::Json;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{no_such_job, row_of};
use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfJobList;
use crate::query::{Cursor, Index, Limit, Query, present};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DocumentsQuery {
    /// Name of the dataset, as the job has it.
    dataset: String,
    /// Which of the job's methods, from 0.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<u32>, default = 0)]
    method: Option<Index>,
    /// `index`, the default: in the order of the dataset. `worst`: the highest mean NLL first,
    /// without documents that have no counted token, `limit` of them and no further page.
    #[serde(default, deserialize_with = "present")]
    #[param(inline)]
    order: Option<Order>,
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Index>>,
    /// Documents of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10000, default = 100)]
    limit: Limit<10_000>,
}

/// The order of documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Index,
    Worst,
}

/// List the documents of a dataset
///
/// With their sums, in the order of the dataset or the worst first. The list is empty until every
/// document of the dataset is counted.
#[utoipa::path(
    get,
    path = "/jobs/{id}/documents",
    operation_id = "list_documents",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job."), DocumentsQuery),
    responses(
        (status = 200, description = "A page of documents.", body = Page<DocumentRow>),
        OfJobList,
    ),
)]
pub(crate) async fn list(
    caller: Caller,
    JobPath(id): JobPath,
    Query(query): Query<DocumentsQuery>,
) -> Result<Json<Page<DocumentRow>>, ApiError> {
    let job: Job = caller
        .ledger
        .job(id)
        .await?
        .ok_or_else(|| no_such_job(id))?;
    let row = row_of(&job, &query.dataset, query.method.unwrap_or_default())?;
    if query.order == Some(Order::Worst) {
        if query.cursor.is_some() {
            return Err(ApiError::of_field(
                ErrorCode::InvalidRequest,
                "cursor",
                "does not go together with `order=worst`, which has one page; ask for more with \
                 `limit`",
            ));
        }
        let items = caller.ledger.worst(id, row, query.limit.size()).await?;
        return Ok(Json(Page { items, next: None }));
    }
    let Index(from) = query.cursor.map_or_else(Index::default, |cursor| cursor.0);
    let rows = caller
        .ledger
        .documents(id, row, from.into(), query.limit.rows())
        .await?;
    Ok(Json(query.limit.page(rows, |last| last.index + 1)))
}
