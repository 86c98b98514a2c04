//! Wire types of Assay: what travels over HTTP, and the one enum of error codes.
//!
//! This crate knows neither a database nor a tensor. Units are in the names or in the
//! field's documentation; times are RFC 3339 in UTC.

mod check;
mod code;
mod comparison;
mod dataset;
mod deadline;
mod event;
mod inspect;
mod job;
mod key;
mod method;
mod model;
mod numerics;
mod one_or_many;
mod page;
mod partial;
mod performance;
mod pick;
mod plan;
mod problem;
mod profile;
mod result;
mod status;
mod upload;
mod webhook;

pub use check::Check;
pub use code::ErrorCode;
pub use comparison::{
    Comparison, ComparisonRequest, DatasetComparison, DocumentChange, Gate, GateRequest,
    GateResult, GroupComparison, JobSelector, JobSelectorSchema, PairedDifference, Unit, Verdict,
};
pub use dataset::{DatasetFormat, DatasetRef, Sample, Score, format_of};
pub use deadline::{Deadlines, Waiting, WaitingCode};
pub use event::{DatasetEvent, JobEvent, StateEvent};
pub use inspect::{
    DatasetInspection, DatasetInspectionRequest, FileSize, GroupSize, HistogramBin, LengthUnit,
    Lengths, MemoryNeed, ModelInspection, StoredDtype, Token, TokenizerInspection,
};
pub use job::{
    DatasetProgress, Download, Job, JobError, JobRequest, JobState, Progress, ShardLocation,
};
pub use key::{AuditEntry, CreatedKey, Key, NewKey, Scope};
pub use method::{Bos, Convention, Dtype, DtypeRequest, Method, MethodRequest, Tail};
pub use model::{AdaptedModel, ModelRef, ModelSchema};
pub use numerics::{Numerics, Precision, PrecisionEffect, PrecisionShare};
pub use one_or_many::OneOrMany;
pub use page::Page;
pub use partial::{PartialDataset, PartialNumbers, PartialPoint, PartialResult};
pub use performance::{
    Baseline, BaselineRequest, BaselineSource, DevicePerformance, Performance, Spread,
};
pub use pick::{FileEntry, FileKind, ModelEntry, ModelFormat, ModelKind};
pub use plan::{PlanComparison, PlanDevice, PlanRequest, Strategy, StrategyPrediction};
pub use problem::{FieldError, Problem};
pub use profile::{ProfileSpan, ProfiledShard, ProfiledWork};
pub use result::{
    DatasetResult, DocumentRow, GroupResult, JobResult, ModelFacts, TokenRow, TokenizerFacts,
};
pub use status::{
    AttemptKind, AttemptOutcome, AttemptRow, AuditState, DeviceStatus, Health, Readiness, ShardRow,
    ShardState, WorkerError, WorkerRow, WorkerState,
};
pub use upload::Upload;
pub use webhook::{
    Delivery, DeliveryAttempt, DeliveryState, Webhook, WebhookMessage, WebhookSecret,
};

/// Identifies a job: a UUID version 7, so ids sort by creation time.
pub type JobId = uuid::Uuid;
/// Identifies one run of a worker process.
pub type WorkerId = uuid::Uuid;
