//! Shards, attempts, workers, health.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Dtype, ErrorCode, Method, WorkerId};

/// The states of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShardState {
    /// Waits for a worker.
    Queued,
    /// At least one live attempt.
    Running,
    /// Committed.
    Done,
}

/// Why a worker runs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttemptKind {
    /// Plans the job.
    Plan,
    /// Runs a shard.
    Primary,
    /// Runs a shard that another device is slow with; whichever ends first counts.
    Copy,
    /// Runs a counted shard again, to compare.
    Audit,
}

/// Where the audit of a shard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditState {
    /// To be computed again by another worker.
    Wanted,
    /// Two workers disagree; a third one has to decide.
    Disputed,
    /// Two workers agree.
    Agreed,
    /// No other worker was there.
    Waived,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttemptOutcome {
    /// Its numbers count, or were compared if it was an audit.
    Committed,
    /// It failed with an error.
    Failed,
    /// Its lease ran out.
    Lost,
    /// The worker gave it back, at no cost.
    Released,
    /// The job ended first.
    Cancelled,
    /// Another attempt at the shard was counted first.
    Superseded,
    /// Its numbers were taken back: its worker was found to compute wrong ones.
    Revoked,
}

/// One attempt at a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttemptRow {
    /// The fence: grows with every claim of the service.
    pub fence: i64,
    /// Why it runs.
    pub kind: AttemptKind,
    /// Name of the worker.
    pub worker: String,
    /// The device, as given to the worker.
    #[serde(default)]
    pub device: String,
    /// Kind of the device.
    pub device_kind: String,
    /// What it computed in, if not the job's dtype.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Dtype>,
    /// Whether its device computed alone, to measure the baseline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub solo: bool,
    /// When it was claimed.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub finished_at: Option<DateTime<Utc>>,
    /// How it ended; null while it is live.
    pub outcome: Option<AttemptOutcome>,
    /// Whether a result arrived after the attempt had ended otherwise; such a result is dropped.
    pub late: bool,
    /// Code of the error, if it failed.
    pub error_code: Option<ErrorCode>,
    /// The error, if it failed.
    pub error: Option<String>,
}

/// One row of `GET /jobs/{id}/shards`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardRow {
    /// Index of the shard in the job, from 0.
    pub index: u32,
    /// Name of the dataset.
    pub dataset: String,
    /// The method.
    pub method: Method,
    /// Where it stands.
    pub state: ShardState,
    /// Windows in it.
    pub windows: u64,
    /// Tokens it counts.
    pub scored_tokens: u64,
    /// Floating-point operations it is planned to cost.
    pub flops: f64,
    /// `sha256:` of the spans it was given.
    pub spans_digest: String,
    /// Times that its micro-batches were halved to fit in memory.
    #[serde(default)]
    pub split_depth: u32,
    /// Device seconds of the committed attempt.
    pub seconds: Option<f64>,
    /// Where its audit stands; null if it is not to be audited.
    #[serde(default)]
    pub audit: Option<AuditState>,
    /// Its attempts, oldest first.
    pub attempts: Vec<AttemptRow>,
}

/// Whether a worker is heard of, and trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Heard of within its lease.
    Live,
    /// Ended in order.
    Stopped,
    /// Silent for longer than its lease.
    Lost,
    /// Heard of, and given no work any more: see `out_of_service`.
    OutOfService,
}

/// One device of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeviceStatus {
    /// As given to the worker, such as `cpu:0-1` or `cuda:0`.
    pub name: String,
    /// The device kind: backend, model or instruction set, threads, libtorch, build.
    pub kind: String,
}

/// One row of `GET /workers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkerRow {
    /// Id of this run of the worker.
    #[schema(value_type = Uuid)]
    pub id: WorkerId,
    /// Name: host and process.
    pub name: String,
    /// Whether it is heard of.
    pub state: WorkerState,
    /// Version of the program.
    pub version: String,
    /// Its devices.
    pub devices: Vec<DeviceStatus>,
    /// When it registered.
    pub started_at: DateTime<Utc>,
    /// When it was last heard of.
    pub last_seen_at: DateTime<Utc>,
    /// Live attempts it holds.
    pub running: u64,
    /// Results that came after their attempt had ended otherwise, and were dropped.
    #[serde(default)]
    pub late_commits: u64,
    /// Why it is given no work any more, until it is started anew.
    #[serde(default)]
    pub out_of_service: Option<String>,
    /// The last trouble that it told of itself.
    #[serde(default)]
    pub last_error: Option<WorkerError>,
}

/// Trouble of a worker that is no fault of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerError {
    /// The code.
    pub code: ErrorCode,
    /// What happened.
    pub detail: String,
    /// When it was told.
    pub at: DateTime<Utc>,
}

/// The answer of `GET /healthz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// Always `ok`: the process answers.
    pub status: String,
    /// Version of the program.
    pub version: String,
}

/// The answer of `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// `ready`, or `unavailable` with status 503.
    pub status: String,
    /// Whether the database answers and its schema is the one of this program.
    pub database: bool,
    /// Live workers.
    pub workers: u64,
}
