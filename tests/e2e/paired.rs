//! Paired differences, worked out anew from what the service says of documents and tokens.

use std::collections::BTreeMap;
use std::f64::consts::LN_2;

use assay_api::{
    DatasetComparison, DocumentChange, DocumentRow, PairedDifference, TokenRow, Unit, Verdict,
};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::reference::differs_by;

const UNITS_PER_NAT: f64 = 4_294_967_296.0;
/// Relative. Both sides round integers to doubles and add some hundred squares.
const TOLERANCE: f64 = 1e-11;
/// Relative, of quantiles and of tails of the binomial distribution.
const QUANTILE_TOLERANCE: f64 = 1e-8;

/// What both jobs have of a document or of a span, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cluster {
    /// Tokens or bytes.
    pub(crate) units: u64,
    /// Summed NLL in the baseline, in units of 2^-32 nat.
    pub(crate) baseline: i128,
    /// Summed NLL in the candidate.
    pub(crate) candidate: i128,
}

impl Cluster {
    fn rose_by(self) -> i128 {
        self.candidate - self.baseline
    }

    fn and(self, other: Self) -> Self {
        Self {
            units: self.units + other.units,
            baseline: self.baseline + other.baseline,
            candidate: self.candidate + other.candidate,
        }
    }

    /// Nats per unit of a sum.
    fn mean(self, sum: i128) -> f64 {
        sum as f64 / UNITS_PER_NAT / self.units as f64
    }
}

/// The documents of two jobs that scored the same text.
pub(crate) fn clusters(
    baseline: &[DocumentRow],
    candidate: &[DocumentRow],
    unit: Unit,
) -> Vec<Cluster> {
    assert_eq!(baseline.len(), candidate.len());
    let pairs = baseline.iter().zip(candidate);
    pairs
        .map(|(baseline, candidate)| {
            assert_eq!(baseline.bytes, candidate.bytes);
            let units = match unit {
                Unit::Token => {
                    assert_eq!(baseline.scored_tokens, candidate.scored_tokens);
                    candidate.scored_tokens
                }
                Unit::Byte => candidate.bytes,
            };
            Cluster {
                units,
                baseline: exact(&baseline.nll_exact),
                candidate: exact(&candidate.nll_exact),
            }
        })
        .collect()
}

/// The 50 equal spans between the first counted token and the last of the one document that two
/// jobs scored.
pub(crate) fn spans(baseline: &[TokenRow], candidate: &[TokenRow]) -> Vec<Cluster> {
    const SPANS: u64 = 50;
    let counted = |tokens: &[TokenRow]| -> BTreeMap<u64, i128> {
        let counted = tokens.iter().filter_map(|token| {
            let nll = token.nll_exact.as_deref()?;
            Some((token.index, exact(nll)))
        });
        counted.collect()
    };
    let (baseline, candidate) = (counted(baseline), counted(candidate));
    assert!(baseline.keys().eq(candidate.keys()));
    let (first, last) = (baseline.keys().next(), baseline.keys().next_back());
    let (first, last) = (*first.unwrap(), *last.unwrap());
    let mut spans = vec![Cluster::default(); usize::try_from(SPANS).unwrap()];
    for (token, baseline) in baseline {
        let span = usize::try_from((token - first) * SPANS / (last - first + 1)).unwrap();
        spans[span] = spans[span].and(Cluster {
            units: 1,
            baseline,
            candidate: candidate[&token],
        });
    }
    spans
}

fn exact(text: &str) -> i128 {
    text.parse().expect("an integer")
}

/// Standard error and half-width of the 95 % interval of the difference of means: with differences
/// D and units N of G clusters the sandwich estimator of the ratio of sums,
/// `sqrt(G / (G - 1) * sum((D * sum(N) - N * sum(D))^2)) / sum(N)^2`, whose residuals are integers.
fn error(clusters: &[Cluster], all: Cluster) -> Option<(f64, f64)> {
    let touched = clusters.iter().filter(|cluster| cluster.units > 0);
    let squares: Vec<f64> = touched
        .map(|cluster| {
            let units = i128::from(all.units) * cluster.rose_by();
            let residual = units - i128::from(cluster.units) * all.rose_by();
            (residual as f64 / UNITS_PER_NAT).powi(2)
        })
        .collect();
    let g = squares.len() as f64;
    if g < 5.0 {
        return None;
    }
    let variance = g / (g - 1.0) * squares.iter().sum::<f64>();
    let error = variance.sqrt() / (all.units as f64).powi(2);
    let student = StudentsT::new(0.0, 1.0, g - 1.0).unwrap();
    Some((error, error * student.inverse_cdf(0.975)))
}

/// Twice the probability that of `worse + better` fair coins as few show one side as the rarer, the
/// terms of the binomial distribution added one by one.
fn sign_test(worse: u64, better: u64) -> f64 {
    let coins = worse + better;
    let mut choices = 0.0; // ln(coins choose k)
    let mut tail = 0.0;
    for k in 0..=worse.min(better) {
        if k > 0 {
            choices += ((coins - k + 1) as f64 / k as f64).ln();
        }
        tail += (choices - coins as f64 * LN_2).exp();
    }
    (2.0 * tail).min(1.0)
}

/// The difference of means and the half-width of its 95 % interval.
pub(crate) fn estimate(clusters: &[Cluster]) -> Option<(f64, f64)> {
    let all = total(clusters);
    let (_, half_width) = error(clusters, all)?;
    Some((all.mean(all.rose_by()), half_width))
}

fn total(clusters: &[Cluster]) -> Cluster {
    let touched = clusters.iter().filter(|cluster| cluster.units > 0);
    touched.fold(Cluster::default(), |all, cluster| all.and(*cluster))
}

fn assert_near(found: Option<f64>, expected: Option<f64>, tolerance: f64, what: &str) {
    let near = match (found, expected) {
        (Some(found), Some(expected)) => differs_by(found, expected) < tolerance,
        (found, expected) => found == expected,
    };
    assert!(near, "{what}: {found:?} is off {expected:?}");
}

/// Checks every number of a difference.
pub(crate) fn assert_difference(
    found: &PairedDifference,
    documents: usize,
    clusters: &[Cluster],
    what: &str,
) {
    let touched = || clusters.iter().filter(|cluster| cluster.units > 0);
    let all = total(clusters);
    let count = |rose: fn(i128) -> bool| {
        let counted = touched().filter(|cluster| rose(cluster.rose_by()));
        counted.count() as u64
    };
    let signs = (count(|d| d > 0), count(|d| d < 0), count(|d| d == 0));
    assert_eq!(
        (found.documents, found.units, found.clusters as usize),
        (documents as u64, all.units, touched().count()),
        "{what}"
    );
    assert_eq!((found.worse, found.better, found.equal), signs, "{what}");
    assert_eq!(exact(&found.nll_difference_exact), all.rose_by(), "{what}");

    let mean = |sum| (all.units > 0).then(|| all.mean(sum));
    let (error, half_width) = error(clusters, all).unzip();
    let difference = mean(all.rose_by());
    for (found, expected, name) in [
        (found.baseline_mean_nll, mean(all.baseline), "baseline"),
        (found.candidate_mean_nll, mean(all.candidate), "candidate"),
        (found.difference, difference, "difference"),
        (found.perplexity_ratio, difference.map(f64::exp), "ratio"),
        (found.standard_error, error, "standard error"),
    ] {
        assert_near(found, expected, TOLERANCE, &format!("{what}: {name}"));
    }
    let p = Some(sign_test(signs.0, signs.1));
    for (found, expected, name) in [
        (found.confidence_95, half_width, "interval"),
        (Some(found.sign_test_p), p, "sign test"),
    ] {
        let what = format!("{what}: {name}");
        assert_near(found, expected, QUANTILE_TOLERANCE, &what);
    }
}

/// Checks which documents are named as worst and best: at most `limit` of those whose mean rose,
/// and of those whose mean fell.
pub(crate) fn assert_extremes(found: &DatasetComparison, clusters: &[Cluster], limit: usize) {
    let mut changed: Vec<(usize, Cluster)> = clusters.iter().copied().enumerate().collect();
    changed.retain(|(_, cluster)| cluster.units > 0 && cluster.rose_by() != 0);
    // Quotients of integers, compared as integers.
    changed.sort_by(|(_, a), (_, b)| {
        let cross = |a: &Cluster, b: &Cluster| a.rose_by() * i128::from(b.units);
        cross(b, a).cmp(&cross(a, b))
    });
    let best = changed.iter().rev().filter(|(_, c)| c.rose_by() < 0);
    let worst = changed.iter().filter(|(_, c)| c.rose_by() > 0);
    for (found, expected) in [
        (&found.worst, worst.take(limit).collect::<Vec<_>>()),
        (&found.best, best.take(limit).collect()),
    ] {
        let index = |change: &DocumentChange| usize::try_from(change.index).unwrap();
        let indices: Vec<_> = found.iter().map(index).collect();
        let expected_indices: Vec<_> = expected.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, expected_indices);
        for (found, (index, cluster)) in found.iter().zip(expected) {
            assert_eq!(found.units, cluster.units);
            for (found, sum) in [
                (found.baseline_mean_nll, cluster.baseline),
                (found.candidate_mean_nll, cluster.candidate),
                (found.difference, cluster.rose_by()),
            ] {
                let what = format!("document {index}");
                assert_near(Some(found), Some(cluster.mean(sum)), TOLERANCE, &what);
            }
        }
    }
}

/// What a largest increase makes of a difference.
pub(crate) fn verdict(found: &PairedDifference, max_increase: f64) -> Verdict {
    if found.worse + found.better == 0 {
        return Verdict::Pass;
    }
    let (Some(difference), Some(half_width)) = (found.difference, found.confidence_95) else {
        return Verdict::Inconclusive;
    };
    if difference + half_width <= max_increase {
        Verdict::Pass
    } else if difference - half_width > max_increase {
        Verdict::Fail
    } else {
        Verdict::Inconclusive
    }
}
