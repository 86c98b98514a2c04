//! The numbers of what is counted so far.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{JobId, JobState, Method};

/// The answer of `GET /jobs/{id}/partial`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartialResult {
    /// The job.
    #[schema(value_type = Uuid)]
    pub job_id: JobId,
    /// Its state at that time.
    pub state: JobState,
    /// Whether every token of the plan is counted.
    pub complete: bool,
    /// When this was so.
    pub at: DateTime<Utc>,
    /// One entry per dataset and method, in the order of the results.
    pub datasets: Vec<PartialDataset>,
}

/// What is counted so far of a dataset under a method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartialDataset {
    /// Name of the dataset.
    pub name: String,
    /// The method.
    pub method: Method,
    /// Shards that are counted.
    pub shards_done: u64,
    /// Shards of the plan; 0 before it, and where an earlier job has scored it all.
    pub shards: u64,
    /// Tokens that will be counted; null until the job is planned.
    pub planned_tokens: Option<u64>,
    /// Summed negative log-likelihood of the counted tokens in nats.
    pub nll: f64,
    /// The same sum as an exact integer in units of 2^-32 nat.
    pub nll_exact: String,
    /// Clusters with counted tokens, the G of the standard error.
    pub clusters: u32,
    /// The numbers now.
    #[serde(flatten)]
    pub numbers: PartialNumbers,
    /// The numbers as more was counted, the oldest first and those of now last: at most 50. None of
    /// what an earlier job has scored.
    pub points: Vec<PartialPoint>,
}

/// The numbers of the tokens that are counted by some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartialNumbers {
    /// Tokens counted.
    pub scored_tokens: u64,
    /// nll / scored_tokens, in nats; null if nothing is counted.
    pub mean_nll: Option<f64>,
    /// exp(mean_nll); null if it overflows.
    pub perplexity: Option<f64>,
    /// Standard error of the mean NLL in nats per token, as that of the result but of the clusters
    /// as far as they are counted; null under 5.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean NLL, t(G-1); null with
    /// `standard_error`.
    pub confidence_95: Option<f64>,
}

/// The numbers at some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PartialPoint {
    /// When the last of it was counted.
    pub at: DateTime<Utc>,
    /// The numbers.
    #[serde(flatten)]
    pub numbers: PartialNumbers,
}
