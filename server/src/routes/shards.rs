//! The shards of a job.

use assay_api::{Page, ShardRow};
use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use super::no_such_job;
use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::JobPath;
use crate::problems::OfJobList;
use crate::query::{Cursor, Index, Limit, Query, present};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShardsQuery {
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Index>>,
    /// Shards of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

/// List the shards of a job
///
/// With every attempt at them. The list is empty until the job is planned.
#[utoipa::path(
    get,
    path = "/jobs/{id}/shards",
    operation_id = "list_shards",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job."), ShardsQuery),
    responses(
        (status = 200, description = "A page of shards.", body = Page<ShardRow>),
        OfJobList,
    ),
)]
pub(crate) async fn list(
    caller: Caller,
    JobPath(id): JobPath,
    Query(query): Query<ShardsQuery>,
) -> Result<Json<Page<ShardRow>>, ApiError> {
    let Index(from) = query.cursor.map_or_else(Index::default, |cursor| cursor.0);
    let rows = caller.ledger.shards(id, from, query.limit.rows()).await?;
    // No rows: a page past the end, a job that is not planned, or no job.
    if rows.is_empty() && caller.ledger.job(id).await?.is_none() {
        return Err(no_such_job(id));
    }
    Ok(Json(query.limit.page(rows, |last| last.index + 1)))
}
