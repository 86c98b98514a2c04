//! The handlers, one file per kind of thing.

pub(crate) mod documents;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod manual;
pub(crate) mod shards;
pub(crate) mod workers;

use assay_api::{ErrorCode, JobId};

use crate::error::ApiError;

/// The refusal of a job's id.
fn no_such_job(id: JobId) -> ApiError {
    ApiError::new(
        ErrorCode::NotFound,
        format!("there is no job {id}; GET /jobs lists the jobs"),
    )
}
