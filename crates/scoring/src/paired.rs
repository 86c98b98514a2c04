//! The difference of two mean NLLs over the same text, paired.
//!
//! Both candidate and baseline find the same documents hard, so the differences by document scatter
//! far less than the NLLs do: a difference of means has a much smaller standard error paired than
//! from the errors of both means.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::exact::ExactSum;
use crate::standard_error::ClusteredError;

/// A cluster in both: a document, or a span of the one document there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Summed NLL in the baseline.
    pub baseline: ExactSum,
    /// Summed NLL in the candidate.
    pub candidate: ExactSum,
    /// Tokens or bytes, the same in both. Pairs of none are left out.
    pub units: u64,
}

/// A paired difference, candidate minus baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedDifference {
    /// Tokens or bytes.
    pub units: u64,
    /// Summed NLL in the baseline.
    pub baseline: ExactSum,
    /// Summed NLL in the candidate.
    pub candidate: ExactSum,
    /// Candidate minus baseline, exact.
    pub difference: ExactSum,
    /// The difference in nats per unit; none without units.
    pub mean: Option<f64>,
    /// Standard error of `mean`, clustered; none below 5 clusters.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of `mean`, by t(G - 1).
    pub confidence_95: Option<f64>,
    /// Clusters with units, the G of the standard error.
    pub clusters: u32,
    /// Clusters whose NLL rose.
    pub worse: u64,
    /// Clusters whose NLL fell.
    pub better: u64,
    /// Clusters whose NLL is equal to the last unit of 2^-32 nat.
    pub equal: u64,
    /// Two-sided p of the sign test.
    pub sign_test_p: f64,
}

/// The paired difference of `pairs`.
///
/// With differences D and units N of G clusters the mean is `m = sum(D) / sum(N)` and its standard
/// error that of every ratio here, `sqrt(G / (G - 1) * sum((D - m N)^2)) / sum(N)`.
pub fn paired_difference(pairs: &[Pair]) -> PairedDifference {
    let touched = || pairs.iter().filter(|pair| pair.units > 0);
    let differences: Vec<(ExactSum, u64)> = touched()
        .map(|pair| (pair.candidate - pair.baseline, pair.units))
        .collect();
    let signed = |sign| {
        let of_sign =
            |(difference, _): &&(ExactSum, u64)| difference.cmp(&ExactSum::default()) == sign;
        differences.iter().filter(of_sign).count() as u64
    };
    let units = differences.iter().map(|(_, units)| units).sum();
    let difference: ExactSum = differences.iter().map(|(difference, _)| *difference).sum();
    let (worse, better) = (
        signed(std::cmp::Ordering::Greater),
        signed(std::cmp::Ordering::Less),
    );
    let error = ClusteredError::of(&differences);
    PairedDifference {
        units,
        baseline: touched().map(|pair| pair.baseline).sum(),
        candidate: touched().map(|pair| pair.candidate).sum(),
        difference,
        mean: (units > 0).then(|| difference.nats() / units as f64),
        standard_error: error.standard_error,
        confidence_95: error.confidence_95(),
        clusters: error.clusters,
        worse,
        better,
        equal: differences.len() as u64 - worse - better,
        sign_test_p: sign_test(worse, better),
    }
}

/// The two-sided p of the sign test (Dixon and Mood, 1946), exact: twice the probability of at most
/// so few of the rarer sign among as many fair coins, 1 at most.
fn sign_test(worse: u64, better: u64) -> f64 {
    match Binomial::new(0.5, worse + better) {
        Ok(coins) if worse + better > 0 => (2.0 * coins.cdf(worse.min(better))).min(1.0),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::to_units;

    fn pairs(of: &[(f64, f64, u64)]) -> Vec<Pair> {
        of.iter()
            .map(|&(baseline, candidate, units)| Pair {
                baseline: to_units(baseline).unwrap().into(),
                candidate: to_units(candidate).unwrap().into(),
                units,
            })
            .collect()
    }

    /// (baseline, candidate, tokens) of seven documents, one of them without tokens.
    const DOCUMENTS: [(f64, f64, u64); 7] = [
        (12.5, 12.75, 5),
        (0.0, 0.0, 0),
        (30.25, 30.0, 10),
        (7.75, 8.5, 4),
        (21.0, 21.0, 6),
        (40.5, 42.0, 15),
        (3.0, 3.5, 2),
    ];

    /// D = 0.25, -0.25, 0.75, 0, 1.5, 0.5 over N = 5, 10, 4, 6, 15, 2. The standard error is from
    /// exact fractions (Python's).
    #[test]
    fn a_difference_by_hand() {
        let d = paired_difference(&pairs(&DOCUMENTS));
        assert_eq!((d.units, d.clusters), (42, 6));
        assert_eq!((d.worse, d.better, d.equal), (4, 1, 1));
        assert_eq!(d.difference, ExactSum::from(11 << 30));
        assert_eq!(d.candidate, d.baseline + d.difference);
        assert_eq!(d.mean, Some(2.75 / 42.0));
        let expected = 0.033_212_650_013_771_314;
        let error = d.standard_error.unwrap();
        assert!((error / expected - 1.0).abs() < 1e-13, "{error}");
        // Five coins, one or fewer of a side: 2 * (1 + 5) / 32.
        assert!((d.sign_test_p - 0.375).abs() < 1e-12, "{}", d.sign_test_p);
    }

    #[test]
    fn equal_sums_differ_by_exactly_nothing() {
        let same = DOCUMENTS.map(|(baseline, _, units)| (baseline, baseline, units));
        let d = paired_difference(&pairs(&same));
        assert_eq!(d.difference, ExactSum::default());
        assert_eq!((d.mean, d.standard_error), (Some(0.0), Some(0.0)));
        assert_eq!((d.confidence_95, d.sign_test_p), (Some(0.0), 1.0));
        assert_eq!((d.worse, d.better, d.equal), (0, 0, 6));
    }

    /// A unit of 2^-32 nat between sums of 2^31 nat is more than a double of nats tells apart.
    #[test]
    fn the_difference_of_large_sums_is_exact() {
        let large = ExactSum::from(i64::MAX);
        let pair = Pair {
            baseline: large,
            candidate: large + ExactSum::from(1),
            units: 1,
        };
        let d = paired_difference(&[pair; 6]);
        assert_eq!(d.mean, Some(1.0 / crate::UNITS_PER_NAT));
        assert_eq!((d.standard_error, d.worse), (Some(0.0), 6));
    }

    #[test]
    fn few_clusters_have_no_error() {
        let d = paired_difference(&pairs(&DOCUMENTS[..5]));
        assert_eq!(
            (d.clusters, d.standard_error, d.confidence_95),
            (4, None, None)
        );
        let nothing = paired_difference(&[]);
        assert_eq!((nothing.mean, nothing.sign_test_p), (None, 1.0));
    }

    /// Binomial tails from exact integers (Python's math.comb).
    #[test]
    fn the_sign_test_is_exact() {
        for (worse, better, p) in [
            (0, 0, 1.0),
            (1, 0, 1.0),
            (10, 0, 0.001_953_125),
            (3, 9, 0.145_996_093_75),
            (60, 40, 0.056_887_933_640_980_79),
            (5, 5, 1.0),
        ] {
            let actual = sign_test(worse, better);
            assert!(
                (actual / p - 1.0).abs() < 1e-10,
                "{worse}, {better}: {actual}"
            );
            assert!((sign_test(better, worse) - actual).abs() < 1e-12);
        }
        // A million documents, nearly all of which rose.
        assert!(sign_test(990_000, 10_000) < 1e-300);
    }
}
