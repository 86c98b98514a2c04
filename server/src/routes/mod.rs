//! The handlers, one file per kind of thing.

pub(crate) mod archive;
pub(crate) mod audit;
pub(crate) mod comparisons;
pub(crate) mod datasets;
pub(crate) mod deliveries;
pub(crate) mod documents;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod manual;
pub(crate) mod metrics;
pub(crate) mod models;
pub(crate) mod partial;
pub(crate) mod plans;
pub(crate) mod report;
pub(crate) mod shards;
pub(crate) mod tokens;
pub(crate) mod workers;

use assay_api::{DatasetRef, ErrorCode, Job, JobId};

use crate::error::ApiError;
use crate::query::Index;

/// A file, in the OpenAPI document.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
struct FileBytes(#[expect(dead_code, reason = "only its schema is used")] Vec<u8>);

/// The refusal of a job's id.
fn no_such_job(id: JobId) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("there is no job {id}; GET /jobs lists the jobs"),
    )
}

/// The row of a job's result for the dataset of this name under one of its methods.
fn row_of(job: &Job, dataset: &str, Index(method): Index) -> Result<u32, ApiError> {
    let methods = job.method.as_slice().len();
    let index = job
        .datasets
        .iter()
        .position(|entry| entry.name() == dataset)
        .ok_or_else(|| {
            let names: Vec<&str> = job.datasets.iter().map(DatasetRef::name).collect();
            ApiError::of_field(
                ErrorCode::NotFound,
                "dataset",
                format!("the job has no dataset {dataset:?}; it has {names:?}"),
            )
        })?;
    let row = (method as usize) < methods;
    row.then_some(index * methods + method as usize)
        .and_then(|row| u32::try_from(row).ok())
        .ok_or_else(|| {
            ApiError::of_field(
                ErrorCode::NotFound,
                "method",
                format!("{method} is not one of the job's {methods} methods, which count from 0"),
            )
        })
}
