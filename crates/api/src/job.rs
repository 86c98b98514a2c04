//! Jobs: the request, the state, the progress.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::one_or_many::object;
use crate::{
    BaselineRequest, DatasetRef, Deadlines, Dtype, DtypeRequest, ErrorCode, Gate, GateRequest,
    JobId, Method, MethodRequest, ModelRef, ModelSchema, Numerics, OneOrMany, Waiting, Webhook,
};

/// The body of `POST /jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path of the checkpoint below the model root, a directory as transformers writes it or a
    /// `.gguf` file; or an object with this `path` and the path of a LoRA `adapter`. Where the
    /// service uses a hub, each may be a reference to it, `hf://org/name@revision`.
    #[schema(value_type = ModelSchema, example = "SmolLM2-135M-Instruct.Q4_1.gguf")]
    pub model: ModelRef,
    /// The datasets to score, at least one.
    #[schema(min_items = 1)]
    pub datasets: Vec<DatasetRef>,
    /// How text becomes numbers. With a list, each dataset is scored by each method, and each is
    /// a row of the result.
    #[serde(default)]
    pub method: OneOrMany<MethodRequest>,
    /// The dtype of the computation.
    #[serde(default)]
    pub dtype: DtypeRequest,
    /// Whether a device that is slow in this dtype may compute in float32.
    #[serde(default, skip_serializing_if = "is_default")]
    pub numerics: Numerics,
    /// Free labels of the caller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Keep the NLL of every counted token, for `GET /jobs/{id}/tokens` and the archive. Such a
    /// job reuses no earlier result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_output: bool,
    /// Take numbers from an earlier job where it scored the same: equal digests of weights,
    /// tokenizer and data, method, dtype, device kind and `numerics_version`. The result says so
    /// in `reused_from`.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    #[schema(default = true)]
    pub reuse: bool,
    /// Jobs of a higher priority are computed first, -100 to 100; among equals the older job.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(minimum = -100, maximum = 100)]
    pub priority: i32,
    /// The share of the shards, 0 to 1 and rounded up, that another worker computes again. Where
    /// two workers disagree a third one decides; the worker that is found wrong computes nothing
    /// more, and its shards of the job are computed again.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schema(minimum = 0, maximum = 1)]
    pub audit: f64,
    /// Whether one device computes a sample of the job alone first, which the speed-up is
    /// measured against.
    #[serde(default, skip_serializing_if = "is_default")]
    pub baseline: BaselineRequest,
    /// An earlier job that this one is held against when it has succeeded: see
    /// `GET /jobs/{id}/gate`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object"
    )]
    pub gate: Option<GateRequest>,
    /// What is told when the job has ended: see `GET /jobs/{id}/deliveries`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object"
    )]
    pub webhook: Option<Webhook>,
    /// How long the job may wait and run.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object"
    )]
    pub deadlines: Option<Deadlines>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn yes() -> bool {
    true
}

/// The states of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits for a worker to plan it.
    Queued,
    /// A worker tokenizes the datasets and cuts the shards.
    Planning,
    /// Shards are being scored.
    Running,
    /// Every token of the plan is counted.
    Succeeded,
    /// Ended by an error, see `error`.
    Failed,
    /// Ended by a caller.
    Cancelled,
}

impl JobState {
    /// All states.
    pub const ALL: &[JobState] = &[
        Self::Queued,
        Self::Planning,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Planning => "planning",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the job has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A job as `GET /jobs/{id}` answers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The job's id.
    #[schema(value_type = Uuid)]
    pub id: JobId,
    /// The caller's name for it.
    pub name: Option<String>,
    /// Where it stands.
    pub state: JobState,
    /// The checkpoint, in the form of the request. A reference to a hub has the commit that its
    /// revision was when the job was posted.
    #[schema(value_type = ModelSchema)]
    pub model: ModelRef,
    /// The datasets, with the options of the request.
    pub datasets: Vec<DatasetRef>,
    /// The method or methods, defaults filled in.
    pub method: OneOrMany<Method>,
    /// The dtype of the computation, `auto` resolved.
    pub dtype: Dtype,
    /// Whether a device that is slow in this dtype may compute in float32.
    #[serde(default)]
    pub numerics: Numerics,
    /// Free labels of the caller.
    pub tags: BTreeMap<String, String>,
    /// Whether the NLL of every counted token is kept.
    #[serde(default)]
    pub token_output: bool,
    /// Jobs of a higher priority are computed first.
    #[serde(default)]
    pub priority: i32,
    /// The share of the shards that is computed twice.
    #[serde(default)]
    pub audit: f64,
    /// Whether one device computes a sample alone first.
    #[serde(default)]
    pub baseline: BaselineRequest,
    /// What it is held against when it has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// What is told when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Webhook>,
    /// How long it may wait and run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadlines: Option<Deadlines>,
    /// What it waits for that will not come by itself, as far as the ledger knows: workers. Left out
    /// where there are any, and once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// When it was accepted.
    pub created_at: DateTime<Utc>,
    /// When a worker first took it up.
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// How far it is.
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<JobError>,
}

impl Job {
    /// Why the job, called `which`, ended without success; none if it did not.
    pub fn why_unsuccessful(&self, which: &str) -> Option<String> {
        if !self.state.is_final() || self.state == JobState::Succeeded {
            return None;
        }
        let state = self.state.as_str();
        let Some(error) = &self.error else {
            return Some(format!("{which} was {state}"));
        };
        let field = error
            .field
            .as_ref()
            .map(|field| format!("{field}: "))
            .unwrap_or_default();
        let shard = error
            .shard
            .as_ref()
            .map(|shard| format!(" (shard {} on {})", shard.shard, shard.worker))
            .unwrap_or_default();
        Some(format!(
            "{which} {state} ({}): {field}{}{shard}",
            error.code, error.detail
        ))
    }
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    /// Tokens counted so far.
    pub scored_tokens: u64,
    /// Tokens the plan counts; null until the job is planned.
    pub planned_tokens: Option<u64>,
    /// Counted tokens per second of wall time since the first shard was claimed.
    pub tokens_per_second: Option<f64>,
    /// Seconds to the end at that rate.
    pub eta_seconds: Option<f64>,
    /// What the worker that plans the job fetches from a hub; null when nothing is fetched.
    #[serde(default)]
    pub download: Option<Download>,
    /// The same by dataset and method, in the order of the request.
    pub datasets: Vec<DatasetProgress>,
}

/// How far the files of a job are fetched from a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Download {
    /// Bytes that are there.
    pub bytes: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// How far one dataset is under one method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetProgress {
    /// Name of the dataset.
    pub name: String,
    /// The method.
    pub method: Method,
    /// Tokens counted so far.
    pub scored_tokens: u64,
    /// Tokens the plan counts; null until the job is planned.
    pub planned_tokens: Option<u64>,
    /// Shards committed.
    pub shards_done: u64,
    /// Shards of the plan.
    pub shards: u64,
}

/// Why a job failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobError {
    /// The code, for programs.
    pub code: ErrorCode,
    /// What happened and what to do about it.
    pub detail: String,
    /// The field of the request at fault, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where the error happened, if in a shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardLocation>,
}

/// A shard, and the worker that last ran it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShardLocation {
    /// Index of the shard in the job.
    pub shard: u32,
    /// Name of the worker.
    pub worker: String,
}
