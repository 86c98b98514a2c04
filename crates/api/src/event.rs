//! The events of a job, as `GET /jobs/{id}/events` sends them.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DatasetResult, JobError, JobState, Progress};

/// What happened to a job. It travels as the `data` of a server-sent event whose `event` is the
/// name in lower case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum JobEvent {
    /// `state`
    State(StateEvent),
    /// `dataset`
    Dataset(Box<DatasetEvent>),
    /// `progress`
    Progress(Progress),
}

/// The job is in another state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StateEvent {
    /// The state from then on.
    pub state: JobState,
    /// When it was so.
    pub at: DateTime<Utc>,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<JobError>,
}

/// Every token of a dataset under a method is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetEvent {
    /// When it was so.
    pub at: DateTime<Utc>,
    /// Its numbers.
    #[serde(flatten)]
    pub result: DatasetResult,
}

impl JobEvent {
    /// The name of the kind, as it travels.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::State(_) => "state",
            Self::Dataset(_) => "dataset",
            Self::Progress(_) => "progress",
        }
    }
}
