//! What a worker that is profiled writes down.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobId;

/// A line of the file of `assay-worker run --profile`: what a device did for some time. The spans
/// of a device do not overlap; between them it waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileSpan {
    /// For which job.
    pub job: JobId,
    /// On which device, such as `cpu:0`; null where a worker did it for all of its devices.
    pub device: Option<String>,
    /// When it began, in seconds since 1970 by the clock that the worker started with.
    pub start: f64,
    /// How long it took.
    pub seconds: f64,
    /// What it was.
    #[serde(flatten)]
    pub work: ProfiledWork,
}

/// What a device did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum ProfiledWork {
    /// Claimed a planning or a shard: its part of a claim of several.
    Claim,
    /// Fetched from a hub, and opened checkpoint and tokenizer, with their digests; behind the
    /// planning, the tokens as well.
    Open,
    /// Read and tokenized the datasets, or took the tokens from the cache.
    Tokenize,
    /// Cut windows, dealt them into shards, and stored the plan in the ledger.
    Plan,
    /// Loaded the weights.
    Load,
    /// Scored a shard.
    Score(ProfiledShard),
    /// Waited until its result was taken.
    HandOver,
    /// Had results counted in the ledger. Devices compute on meanwhile.
    Commit,
    /// Measured the matrix products of a micro-batch alone, which is no part of the job.
    Floor {
        /// Rows of the products.
        rows: usize,
        /// Seconds of the fastest run.
        fastest: f64,
    },
}

/// A shard that was scored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfiledShard {
    /// Tokens that count.
    pub tokens: u64,
    /// Rows of the matrix products of each micro-batch: its input tokens, or more where these are
    /// few.
    pub micro_batches: Vec<usize>,
    /// Seconds in each stage of the decoder, by its name. All others are between the stages.
    pub stages: BTreeMap<String, f64>,
}
