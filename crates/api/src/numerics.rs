//! The dtypes that the devices of a job compute in.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Dtype;

/// Whether all devices compute in the job's dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Numerics {
    /// All of them do.
    #[default]
    Uniform,
    /// A device on which the job's dtype is slower than float32 computes in float32. Precision is
    /// never lowered. The result says what was computed how, and what it changed.
    Adaptive,
}

impl Numerics {
    /// The name as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Adaptive => "adaptive",
        }
    }
}

/// What an adaptive job was computed in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Precision {
    /// By device kind and dtype, the most tokens first. Numbers of earlier jobs are not in it.
    pub shares: Vec<PrecisionShare>,
    /// What the dtypes besides the job's changed; null where all is in the job's, or nothing was
    /// scored in both.
    pub effect: Option<PrecisionEffect>,
}

/// What devices of a kind computed in a dtype.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PrecisionShare {
    /// The device kind.
    pub device_kind: String,
    /// The dtype.
    pub dtype: Dtype,
    /// Tokens counted.
    pub tokens: u64,
    /// Over all tokens that the job has counted of shards of its own.
    pub share: f64,
}

/// How far the job's numbers are from what they would be if all of it were computed in its dtype
/// (positive: higher). An estimate from what was scored in both: each device that computes in
/// another dtype does so with the first micro-batch it gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PrecisionEffect {
    /// Tokens scored in both.
    pub compared_tokens: u64,
    /// The mean difference (other dtype less the job's) in nats per token, times the share of the
    /// job's tokens that are counted in another dtype.
    pub nll_per_token: f64,
    /// Its standard error, in nats per token; null under two tokens. Differences of tokens are
    /// taken as independent.
    pub standard_error: Option<f64>,
    /// exp(nll_per_token): the factor by which the perplexity over all tokens of the job is changed.
    pub perplexity_factor: f64,
}

impl PrecisionEffect {
    /// The effect on a job of which `share` is counted in another dtype, by the sums of the
    /// differences of `tokens` tokens and of their squares. None without tokens.
    pub fn of(tokens: u64, sum: f64, squares: f64, share: f64) -> Option<Self> {
        if tokens == 0 {
            return None;
        }
        let n = tokens as f64;
        let mean = sum / n;
        // The sample variance; rounding may leave it a little below zero.
        let variance = (tokens > 1).then(|| ((squares - n * mean * mean) / (n - 1.0)).max(0.0));
        Some(Self {
            compared_tokens: tokens,
            nll_per_token: share * mean,
            standard_error: variance.map(|variance| share * (variance / n).sqrt()),
            perplexity_factor: (share * mean).exp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_the_mean_difference_of_the_share() {
        let differences: [f64; 4] = [0.01, -0.01, 0.03, 0.01];
        let sum = differences.iter().sum();
        let squares = differences.iter().map(|d| d * d).sum();
        let effect = PrecisionEffect::of(4, sum, squares, 0.5).unwrap();
        assert!((effect.nll_per_token - 0.005).abs() < 1e-15);
        // Deviations from the mean of 0.01: 0, 0.02, 0.02, 0; variance 0.0008 / 3, of the mean / 4.
        let hand = 0.5 * (0.0008_f64 / 12.0).sqrt();
        assert!((effect.standard_error.unwrap() - hand).abs() < 1e-15);
        assert!((effect.perplexity_factor - 0.005_f64.exp()).abs() < 1e-15);
        assert_eq!(PrecisionEffect::of(0, 0.0, 0.0, 1.0), None);
        let one = PrecisionEffect::of(1, 0.25, 0.0625, 1.0).unwrap();
        assert_eq!((one.nll_per_token, one.standard_error), (0.25, None));
        // Equal differences, of which rounding makes a variance below zero.
        let equal = PrecisionEffect::of(3, 0.3, 0.03 - 1e-17, 1.0).unwrap();
        assert!(equal.standard_error.unwrap() < 1e-8);
    }
}
