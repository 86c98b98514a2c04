//! How fast a job went, and against what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether one device computes a sample of a job alone first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BaselineRequest {
    /// If the job is predicted to take a minute or more on several devices; else the rate that was
    /// measured for an earlier job of the same shape serves, where there is one.
    #[default]
    Auto,
    /// Yes.
    Measure,
    /// No.
    Skip,
}

impl BaselineRequest {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Measure => "measure",
            Self::Skip => "skip",
        }
    }
}

/// How fast a job went. Rates of tokens are weighted by operations: a token of a short window
/// costs less than one of a long window, so a rate of operations is measured and divided by the
/// operations that a token of this job costs on average.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Performance {
    /// Counted tokens per second of wall time.
    pub tokens_per_second: Option<f64>,
    /// Wall seconds from the first claim of a shard to the last commit.
    pub seconds: f64,
    /// Tokens counted, each once.
    pub counted_tokens: u64,
    /// Tokens scored by any attempt, late and repeated ones included, as far as reported.
    pub computed_tokens: u64,
    /// One device alone; null where none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Tokens per second of all devices together, from the moment that the first of them computes
    /// until the last commit, the measuring of the baseline left out. Audited tokens are in it as
    /// often as they were computed.
    #[serde(default)]
    pub distributed_tokens_per_second: Option<f64>,
    /// `distributed_tokens_per_second` over that of the baseline.
    #[serde(default)]
    pub speedup: Option<f64>,
    /// The distributed rate over the sum of what its devices do alone; null where that is not
    /// known for each of their kinds.
    #[serde(default)]
    pub efficiency: Option<f64>,
    /// Seconds that the ledger kept devices from computing (`claim_seconds`), over these and the
    /// seconds that they computed.
    #[serde(default)]
    pub communication_share: Option<f64>,
    /// What each device did, ordered by worker and device.
    #[serde(default)]
    pub devices: Vec<DevicePerformance>,
    /// Seconds from the start of the distributed phase to the last commit of each worker.
    #[serde(default)]
    pub worker_seconds: Option<Spread>,
}

/// One device alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Baseline {
    /// Where it is from.
    pub source: BaselineSource,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// Its device kind.
    pub device_kind: String,
}

/// Where a baseline is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BaselineSource {
    /// Measured in this job, on a sample of its shards.
    Measured,
    /// Measured in an earlier job with a model of the same shape, dtype and window.
    Calibrated,
}

/// What one device did for a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DevicePerformance {
    /// Name of its worker.
    pub worker: String,
    /// The device, as given to the worker.
    pub device: String,
    /// Its device kind.
    pub device_kind: String,
    /// Shards counted.
    pub shards: u64,
    /// Tokens counted.
    pub tokens: u64,
    /// Seconds it computed, for results that came too late or were taken back too; not for attempts
    /// without a result.
    pub busy_seconds: f64,
    /// Seconds it waited for its claims, and until its results were taken to be counted.
    pub claim_seconds: f64,
    /// Seconds its results waited until they were counted; it computes meanwhile.
    pub commit_seconds: f64,
    /// Seconds it loaded the model, and in an adaptive job scored a part in the job's dtype.
    pub load_seconds: f64,
    /// Seconds between its first claim and the end of the job in which it did none of these.
    pub idle_seconds: f64,
}

/// How even some times are, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Spread {
    /// The largest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of all of them (not of a sample).
    pub standard_deviation: f64,
}

impl Spread {
    /// Of these numbers; none without a number.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mean,
            standard_deviation: (squares / n).sqrt(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn spreads_by_hand() {
        assert_eq!(Spread::of(&[]), None);
        let spread = Spread::of(&[1.0, 3.0]).unwrap();
        assert_eq!(
            (spread.max, spread.mean, spread.standard_deviation),
            (3.0, 2.0, 1.0)
        );
    }
}
