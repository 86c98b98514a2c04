//! Perplexities and their errors, from the exact sums of a finished dataset.

use std::f64::consts::LN_2;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::cluster::{ClusterLayout, document_sums, total};
use crate::exact::ExactSum;

/// Clusters below which there is no standard error.
const FEWEST_CLUSTERS: u32 = 5;
/// Clusters below which the standard error comes with a warning.
const FEW_CLUSTERS: u32 = 20;

/// What is known of a document before it is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentFacts {
    /// Tokens.
    pub tokens: u64,
    /// Bytes in UTF-8.
    pub bytes: u64,
    /// Words, as [`count_words`](crate::count_words) counts them.
    pub words: u64,
}

/// The numbers of a finished dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetStatistics {
    /// Documents.
    pub documents: u64,
    /// Documents without a scored token.
    pub unscored_documents: u64,
    /// Bytes of the scored documents.
    pub bytes: u64,
    /// Words of the scored documents.
    pub words: u64,
    /// Tokens of all documents.
    pub tokens: u64,
    /// Tokens counted.
    pub scored_tokens: u64,
    /// Summed negative log-likelihood.
    pub nll: ExactSum,
    /// exp(nll / scored tokens).
    pub perplexity: Option<f64>,
    /// exp(nll / words).
    pub word_perplexity: Option<f64>,
    /// exp(nll / bytes).
    pub byte_perplexity: Option<f64>,
    /// nll / bytes / ln 2.
    pub bits_per_byte: Option<f64>,
    /// exp of the mean over scored documents of their mean NLL.
    pub macro_perplexity: Option<f64>,
    /// Standard error of the mean NLL, in nats per token; none below 5 clusters.
    pub standard_error: Option<f64>,
    /// Half-width of the 95 % confidence interval of the mean NLL, by t(G - 1).
    pub confidence_95: Option<f64>,
    /// Whether an exponential overflowed; its measure is then none.
    pub overflow: bool,
    /// Clusters with scored tokens, the G of the standard error.
    pub clusters: u32,
    /// What a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// The statistics of a dataset whose every token is scored, as under `rolling`.
///
/// `documents` has one entry per document; `clusters` the sum and the count of each cluster of
/// `layout`. A measure whose divisor is 0 is none.
pub fn statistics(
    documents: &[DocumentFacts],
    layout: &ClusterLayout,
    clusters: &[(ExactSum, u64)],
) -> DatasetStatistics {
    let per_document = document_sums(layout, clusters);
    let (nll, scored_tokens) = total(clusters);
    let scored = || {
        documents
            .iter()
            .zip(&per_document)
            .filter(|&(_, &(_, scored))| scored > 0)
    };
    let scored_documents = scored().count() as u64;
    let bytes = scored().map(|(facts, _)| facts.bytes).sum();
    let words = scored().map(|(facts, _)| facts.words).sum();
    let mean_of_means = ratio(
        scored()
            .map(|(_, &(sum, scored))| sum.nats() / scored as f64)
            .sum(),
        scored_documents,
    );

    let mut overflow = false;
    let mut exp = |mean: Option<f64>| {
        let value = mean?.exp();
        overflow |= value.is_infinite();
        value.is_finite().then_some(value)
    };
    let perplexity = exp(ratio(nll.nats(), scored_tokens));
    let word_perplexity = exp(ratio(nll.nats(), words));
    let byte_perplexity = exp(ratio(nll.nats(), bytes));
    let macro_perplexity = exp(mean_of_means);

    let error = ClusteredError::of(clusters);
    DatasetStatistics {
        documents: documents.len() as u64,
        unscored_documents: documents.len() as u64 - scored_documents,
        bytes,
        words,
        tokens: documents.iter().map(|facts| facts.tokens).sum(),
        scored_tokens,
        nll,
        perplexity,
        word_perplexity,
        byte_perplexity,
        bits_per_byte: ratio(nll.nats(), bytes).map(|nats| nats / LN_2),
        macro_perplexity,
        standard_error: error.standard_error,
        confidence_95: error.confidence_95(),
        overflow,
        clusters: error.clusters,
        warnings: error.warning(layout).into_iter().collect(),
    }
}

fn ratio(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// The cluster-robust standard error of a ratio of sums.
struct ClusteredError {
    clusters: u32,
    standard_error: Option<f64>,
}

impl ClusteredError {
    /// With sums S and counts N of G clusters and m = sum(S) / sum(N):
    /// `sqrt(G / (G - 1) * sum((S - m N)^2)) / sum(N)`, the linearised (sandwich) estimator.
    fn of(clusters: &[(ExactSum, u64)]) -> Self {
        let (nll, scored) = total(clusters);
        let touched = || clusters.iter().filter(|&&(_, scored)| scored > 0);
        let count = u32::try_from(touched().count()).unwrap_or(u32::MAX);
        let standard_error = (count >= FEWEST_CLUSTERS).then(|| {
            let mean = nll.nats() / scored as f64;
            let squares: f64 = touched()
                .map(|&(sum, n)| (sum.nats() - mean * n as f64).powi(2))
                .sum();
            let g = f64::from(count);
            (g / (g - 1.0) * squares).sqrt() / scored as f64
        });
        Self {
            clusters: count,
            standard_error,
        }
    }

    fn confidence_95(&self) -> Option<f64> {
        let student = StudentsT::new(0.0, 1.0, f64::from(self.clusters) - 1.0).ok()?;
        Some(student.inverse_cdf(0.975) * self.standard_error?)
    }

    fn warning(&self, layout: &ClusterLayout) -> Option<String> {
        let what = match layout {
            ClusterLayout::Documents { .. } => "documents",
            ClusterLayout::Spans { .. } => "spans of the one document",
        };
        let clusters = self.clusters;
        if clusters < FEWEST_CLUSTERS {
            Some(format!(
                "no standard error: only {clusters} {what} have scored tokens, fewer than \
                 {FEWEST_CLUSTERS}"
            ))
        } else if clusters < FEW_CLUSTERS {
            Some(format!(
                "the standard error rests on only {clusters} {what} with scored tokens, fewer \
                 than {FEW_CLUSTERS}, and may be too small"
            ))
        } else {
            None
        }
    }
}
