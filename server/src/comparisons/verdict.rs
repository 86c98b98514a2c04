//! What a gate says of a difference.

use assay_api::{DatasetComparison, PairedDifference, Unit, Verdict};

/// Whether an increase passes that may be `limit` nats per unit at most, and why in a sentence.
///
/// The whole 95 % interval decides: below the limit it passes, above it fails, and an interval that
/// holds the limit is of too little text to tell.
pub(super) fn judge(numbers: &PairedDifference, limit: f64, unit: Unit) -> (Verdict, String) {
    let unit = unit.as_str();
    let limit_text = format!("the limit of {limit:+} nats per {unit}");
    let Some(difference) = numbers.difference else {
        return (
            Verdict::Inconclusive,
            "nothing is counted, so nothing can be judged".to_owned(),
        );
    };
    if numbers.worse == 0 && numbers.better == 0 {
        return (
            Verdict::Pass,
            "every NLL is equal to that of the baseline to the last bit".to_owned(),
        );
    }
    let Some(half) = numbers.confidence_95 else {
        let clusters = numbers.clusters;
        return (
            Verdict::Inconclusive,
            format!(
                "the difference is {difference:+.6} nats per {unit}, and {clusters} clusters are \
                 too few for an interval; score more text"
            ),
        );
    };
    let (low, high) = (difference - half, difference + half);
    let interval = format!("the 95 % interval {low:+.6} .. {high:+.6}");
    if high <= limit {
        (Verdict::Pass, format!("{interval} lies below {limit_text}"))
    } else if low > limit {
        (Verdict::Fail, format!("{interval} lies above {limit_text}"))
    } else {
        (
            Verdict::Inconclusive,
            format!("{interval} holds {limit_text}; score more text"),
        )
    }
}

/// The verdict of all datasets: the first of fail, inconclusive and pass that one of them has. None
/// where none was asked for.
pub(super) fn overall(datasets: &[DatasetComparison]) -> Option<Verdict> {
    let one_is = |verdict| datasets.iter().any(|d| d.verdict == Some(verdict));
    [Verdict::Fail, Verdict::Inconclusive, Verdict::Pass]
        .into_iter()
        .find(|verdict| one_is(*verdict))
}

#[cfg(test)]
mod tests {
    use Verdict::{Fail, Inconclusive, Pass};
    use assay_api::Method;

    use super::*;

    fn numbers(difference: Option<f64>, half: Option<f64>, worse: u64) -> PairedDifference {
        PairedDifference {
            documents: 30,
            units: 900,
            baseline_mean_nll: Some(3.0),
            candidate_mean_nll: difference.map(|d| 3.0 + d),
            difference,
            nll_difference_exact: "0".to_owned(),
            perplexity_ratio: None,
            standard_error: half.map(|half| half / 2.0),
            confidence_95: half,
            clusters: 30,
            worse,
            better: 0,
            equal: 30 - worse,
            sign_test_p: 1.0,
        }
    }

    #[test]
    fn the_interval_decides() {
        for (difference, half, worse, limit, verdict) in [
            (Some(0.0), Some(0.0), 0, 0.0, Pass),
            (Some(0.0), None, 0, 0.0, Pass),
            (Some(0.004), Some(0.005), 9, 0.01, Pass),
            (Some(0.005), Some(0.006), 9, 0.01, Inconclusive),
            (Some(-0.005), Some(0.02), 9, 0.01, Inconclusive),
            (Some(0.012), Some(0.001), 9, 0.01, Fail),
            // The interval ends at the limit.
            (Some(0.5), Some(0.5), 9, 1.0, Pass),
            (Some(2.0), Some(1.0), 9, 1.0, Inconclusive),
            (Some(-1.0), Some(0.1), 9, 0.0, Pass),
            (Some(5.0), None, 9, 0.01, Inconclusive),
            (None, None, 0, 0.01, Inconclusive),
        ] {
            let (actual, reason) = judge(&numbers(difference, half, worse), limit, Unit::Token);
            assert_eq!(actual, verdict, "{difference:?} {half:?} {limit}: {reason}");
        }
        let (_, reason) = judge(&numbers(Some(0.02), Some(0.005), 9), 0.01, Unit::Byte);
        assert_eq!(
            reason,
            "the 95 % interval +0.015000 .. +0.025000 lies above the limit of +0.01 nats per byte"
        );
    }

    #[test]
    fn one_dataset_that_fails_fails_all() {
        let dataset = |verdict| DatasetComparison {
            name: "d".to_owned(),
            baseline_name: None,
            method: Method::rolling(8),
            unit: Unit::Token,
            difference: numbers(None, None, 0),
            max_increase: None,
            verdict,
            reason: None,
            groups: Vec::new(),
            worst: Vec::new(),
            best: Vec::new(),
        };
        for (verdicts, all) in [
            (vec![Some(Pass), Some(Pass)], Some(Pass)),
            (vec![Some(Pass), Some(Inconclusive)], Some(Inconclusive)),
            (vec![Some(Fail), Some(Inconclusive)], Some(Fail)),
            (vec![None], None),
        ] {
            let datasets: Vec<_> = verdicts.into_iter().map(dataset).collect();
            assert_eq!(overall(&datasets), all);
        }
    }
}
