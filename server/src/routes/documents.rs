//! The documents of a job's datasets.

use assay_api::{DatasetRef, DocumentRow, ErrorCode, Job, Page};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::no_such_job;
use crate::app::AppState;
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
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<Index>>,
    /// Documents of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 10000, default = 100)]
    limit: Limit<10_000>,
}

/// List the documents of a dataset
///
/// With their sums, in the order of the dataset. The list is empty until every document of the
/// dataset is counted.
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
    State(state): State<AppState>,
    JobPath(id): JobPath,
    Query(query): Query<DocumentsQuery>,
) -> Result<Json<Page<DocumentRow>>, ApiError> {
    let job = state.store.job(id).await?.ok_or_else(|| no_such_job(id))?;
    let dataset = index_of(&job, &query.dataset)?;
    let Index(from) = query.cursor.map_or_else(Index::default, |cursor| cursor.0);
    let rows = state
        .store
        .documents(id, dataset, from.into(), query.limit.rows())
        .await?;
    Ok(Json(query.limit.page(rows, |last| last.index + 1)))
}

/// The index of the dataset of this name.
fn index_of(job: &Job, name: &str) -> Result<u32, ApiError> {
    let index = job
        .datasets
        .iter()
        .position(|dataset| dataset.name() == name);
    index
        .and_then(|index| u32::try_from(index).ok())
        .ok_or_else(|| {
            let names: Vec<&str> = job.datasets.iter().map(DatasetRef::name).collect();
            ApiError::of_field(
                ErrorCode::NotFound,
                "dataset",
                format!("the job has no dataset {name:?}; it has {names:?}"),
            )
        })
}
