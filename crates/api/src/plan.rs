//! `POST /plans`: how a job would be spread over devices, by several strategies, without running.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{JobRequest, Spread};

/// The body of `POST /plans`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The job, as `POST /jobs` takes it.
    pub job: JobRequest,
    /// The devices to spread it over, at least one.
    #[schema(min_items = 1)]
    pub devices: Vec<PlanDevice>,
    /// Decides what `random` draws.
    #[serde(default)]
    pub seed: u64,
}

/// Some equal devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDevice {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tokens per second of one such device at this job, alone.
    #[schema(exclusive_minimum = 0)]
    pub tokens_per_second: f64,
    /// How many there are.
    #[serde(default = "one")]
    #[schema(default = 1, minimum = 1, maximum = 4096)]
    pub count: u32,
}

fn one() -> u32 {
    1
}

/// The answer of `POST /plans`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanComparison {
    /// Documents of the datasets.
    pub documents: u64,
    /// Windows, all methods together.
    pub windows: u64,
    /// Tokens that count.
    pub scored_tokens: u64,
    /// Floating-point operations.
    pub flops: f64,
    /// Shards of the plan that the job would run by.
    pub shards: u64,
    /// Seconds that no strategy can go below: all work spread without a rest, or the longest
    /// window on the fastest device.
    pub lower_bound_seconds: f64,
    /// One entry for each strategy.
    pub strategies: Vec<StrategyPrediction>,
}

/// A way to spread work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Each document goes to a device drawn at random.
    Random,
    /// Equal numbers of documents, in their order.
    Even,
    /// Documents by falling length, dealt one to each device in turn.
    Length,
    /// What jobs run by: shards of ragged micro-batches, claimed largest first by whoever is free.
    Dynamic,
}

/// What one strategy would come to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StrategyPrediction {
    /// The strategy.
    pub strategy: Strategy,
    /// Seconds until each device has done its last piece, in the order of the request, each kind
    /// `count` times.
    pub device_seconds: Vec<f64>,
    /// How even they are; the maximum is when the job ends.
    pub seconds: Spread,
    /// The maximum over the lower bound.
    pub over_lower_bound: f64,
}
