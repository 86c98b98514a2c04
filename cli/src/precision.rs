//! What an adaptive job was computed in, for people.

use assay_api::JobResult;

use crate::numbers::grouped;

/// The dtypes by device kind, and what they changed. Empty where all numerics are uniform.
pub(crate) fn facts(result: &JobResult) -> Vec<String> {
    let Some(precision) = &result.precision else {
        return Vec::new();
    };
    let shares = precision.shares.iter().map(|share| {
        format!(
            "{:.1} % of the tokens in {} by {}",
            100.0 * share.share,
            share.dtype.as_str(),
            share.device_kind
        )
    });
    let effect = precision.effect.iter().map(|effect| {
        let error = effect
            .standard_error
            .map(|error| format!(" ± {error:.1e}"))
            .unwrap_or_default();
        format!(
            "that changed the mean NLL by {:+.1e}{error} nats, and the perplexity by {:+.3} %, \
             estimated from {} tokens scored in both",
            effect.nll_per_token,
            100.0 * (effect.perplexity_factor - 1.0),
            grouped(effect.compared_tokens)
        )
    });
    shares.chain(effect).collect()
}

#[cfg(test)]
mod tests {
    use assay_api::{Dtype, Precision, PrecisionEffect, PrecisionShare};

    use super::*;

    #[test]
    fn shares_and_effect_are_told() {
        let mut result = crate::report::tests::result(Vec::new());
        assert!(facts(&result).is_empty());
        let share = |kind: &str, dtype, share| PrecisionShare {
            device_kind: kind.to_owned(),
            dtype,
            tokens: 1000,
            share,
        };
        result.precision = Some(Precision {
            shares: vec![
                share("new", Dtype::Bfloat16, 0.75),
                share("old", Dtype::Float32, 0.25),
            ],
            effect: Some(PrecisionEffect {
                compared_tokens: 4096,
                nll_per_token: -0.000_31,
                standard_error: Some(0.000_04),
                perplexity_factor: 0.999_69,
            }),
        });
        assert_eq!(
            facts(&result),
            [
                "75.0 % of the tokens in bfloat16 by new",
                "25.0 % of the tokens in float32 by old",
                "that changed the mean NLL by -3.1e-4 ± 4.0e-5 nats, and the perplexity by -0.031 %, \
                 estimated from 4,096 tokens scored in both",
            ]
        );
    }
}
