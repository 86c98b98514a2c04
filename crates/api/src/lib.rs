//! Wire types of Assay: what travels over HTTP, and the one enum of error codes.
//!
//! This crate knows neither a database nor a tensor. Units are in the names or in the
//! field's documentation; times are RFC 3339 in UTC.

mod code;
mod dataset;
mod job;
mod method;
mod page;
mod problem;
mod result;
mod status;

pub use code::ErrorCode;
pub use dataset::{DatasetFormat, DatasetRef};
pub use job::{DatasetProgress, Job, JobError, JobRequest, JobState, Progress, ShardLocation};
pub use method::{Convention, Dtype, DtypeRequest, Method, MethodRequest};
pub use page::Page;
pub use problem::{FieldError, Problem};
pub use result::{DatasetResult, DocumentRow, JobResult, ModelFacts, Performance, TokenizerFacts};
pub use status::{
    AttemptKind, AttemptOutcome, AttemptRow, DeviceStatus, Health, Readiness, ShardRow, ShardState,
    WorkerRow, WorkerState,
};

/// Identifies a job: a UUID version 7, so ids sort by creation time.
pub type JobId = uuid::Uuid;
/// Identifies one run of a worker process.
pub type WorkerId = uuid::Uuid;
