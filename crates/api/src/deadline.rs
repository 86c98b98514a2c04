//! How long a job may wait and run, and what it waits for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How long a job may take. One that takes longer fails; what is computed by then stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Deadlines {
    /// Seconds from the post of the job until a worker first takes it up; later than that it fails
    /// with `E1003`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub queue_seconds: Option<u32>,
    /// Seconds from then until its end, whatever is lost and repeated meanwhile; later than that it
    /// fails with `E1004`, and its running shards are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub run_seconds: Option<u32>,
}

/// Why a job that has not ended cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitingCode {
    /// No worker is live.
    NoWorker,
    /// Workers are live, but all of them are out of service.
    NoWorkerInService,
}

impl WaitingCode {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoWorker => "no_worker",
            Self::NoWorkerInService => "no_worker_in_service",
        }
    }

    /// What to do about it.
    pub const fn detail(self) -> &'static str {
        match self {
            Self::NoWorker => "no worker is live; start one with `assay-worker run`",
            Self::NoWorkerInService => {
                "all live workers are out of service; GET /workers says why, and one that is \
                 started anew is in service again"
            }
        }
    }
}

/// What a job waits for that will not come by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// Why, for programs.
    pub code: WaitingCode,
    /// Why, and what to do.
    pub detail: String,
}

impl From<WaitingCode> for Waiting {
    fn from(code: WaitingCode) -> Self {
        Self {
            code,
            detail: code.detail().to_owned(),
        }
    }
}
