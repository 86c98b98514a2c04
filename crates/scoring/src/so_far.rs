//! The numbers of a dataset of which not everything is counted.

use crate::cluster::total;
use crate::exact::ExactSum;
use crate::standard_error::ClusteredError;
use crate::statistics::ratio;

/// The mean NLL of the tokens that are counted, and its error.
///
/// By the formulas of [`statistics`](crate::statistics()), so that both are equal to the bit once
/// everything is counted. Before, shards are counted largest first: this is no sample of the whole,
/// and the error says nothing about what is missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SoFar {
    /// Summed negative log-likelihood.
    pub nll: ExactSum,
    /// Tokens counted.
    pub scored_tokens: u64,
    /// nll / scored tokens, in nats; none if nothing is counted.
    pub mean_nll: Option<f64>,
    /// exp(mean NLL); none if it overflows.
    pub perplexity: Option<f64>,
    /// Standard error of the mean NLL, in nats per token; none below 5 clusters.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean NLL, by t(G - 1).
    pub confidence_95: Option<f64>,
    /// Clusters with counted tokens, the G of the standard error.
    pub clusters: u32,
}

impl SoFar {
    /// Of the sum and the count of each cluster.
    pub fn of(clusters: &[(ExactSum, u64)]) -> Self {
        let (nll, scored_tokens) = total(clusters);
        let mean_nll = ratio(nll.nats(), scored_tokens);
        let error = ClusteredError::of(clusters);
        Self {
            nll,
            scored_tokens,
            mean_nll,
            perplexity: mean_nll.map(f64::exp).filter(|value| value.is_finite()),
            standard_error: error.standard_error,
            confidence_95: error.confidence_95(),
            clusters: error.clusters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterLayout, Detail, DocumentFacts, statistics};

    /// Six documents, and the same of which the last two are not counted yet.
    #[test]
    fn a_part_is_what_the_whole_would_be_of_it() {
        let all = [(13, 5), (0, 0), (30, 10), (8, 4), (21, 6), (41, 15), (9, 3)]
            .map(|(nats, tokens)| (ExactSum::from(nats << 32), tokens));
        let layout = ClusterLayout::Documents { documents: 7 };
        let facts = all.map(|(_, tokens)| DocumentFacts {
            tokens,
            bytes: 4 * tokens,
            words: tokens,
        });
        for counted in [7, 6, 3, 0] {
            let mut clusters = all;
            clusters[counted..].fill((ExactSum::default(), 0));
            let so_far = SoFar::of(&clusters);
            let whole = statistics(&facts, &layout, &clusters, &Detail::default());
            let of_whole = SoFar {
                nll: whole.nll,
                scored_tokens: whole.scored_tokens,
                mean_nll: so_far.mean_nll,
                perplexity: whole.perplexity,
                standard_error: whole.standard_error,
                confidence_95: whole.confidence_95,
                clusters: whole.clusters,
            };
            assert_eq!(so_far, of_whole, "{counted}");
        }
        let three = SoFar::of(&all[..3]);
        assert_eq!(three.mean_nll, Some(43.0 / 15.0));
        assert_eq!((three.clusters, three.standard_error), (2, None));
        let nothing = SoFar::of(&[]);
        assert_eq!((nothing.mean_nll, nothing.perplexity), (None, None));
    }

    #[test]
    fn what_overflows_is_none() {
        let so_far = SoFar::of(&[(ExactSum::from(1000 << 32), 1)]);
        assert_eq!((so_far.mean_nll, so_far.perplexity), (Some(1000.0), None));
    }
}
