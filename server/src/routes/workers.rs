//! The workers.

use assay_api::{Page, WorkerId, WorkerRow};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::AppState;
use crate::error::ApiError;
use crate::problems::OfList;
use crate::query::{Cursor, Limit, Query, present};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkersQuery {
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<WorkerId>>,
    /// Workers of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

/// List workers
///
/// Newest first, also those that have stopped or were lost.
#[utoipa::path(
    get,
    path = "/workers",
    operation_id = "list_workers",
    tag = "service",
    params(WorkersQuery),
    responses((status = 200, description = "A page of workers.", body = Page<WorkerRow>), OfList),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<WorkersQuery>,
) -> Result<Json<Page<WorkerRow>>, ApiError> {
    let before = query.cursor.map(|cursor| cursor.0);
    let rows = state.commons.workers(before, query.limit.rows()).await?;
    Ok(Json(query.limit.page(rows, |worker| worker.id)))
}
