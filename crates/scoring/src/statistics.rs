//! Perplexities and their errors, from the exact sums of a finished dataset.

use std::f64::consts::LN_2;

use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterLayout, document_sums, total};
use crate::exact::ExactSum;
use crate::groups::{GroupStatistics, group_statistics, group_warning};
use crate::standard_error::ClusteredError;

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
    /// Sum and count of each span, where one document's spans are the clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<(ExactSum, u64)>,
    /// The numbers of each group of documents, ordered by name; none if there are no groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatistics>,
}

/// What the statistics of a dataset hold beside its perplexity.
#[derive(Clone, Copy, Debug)]
pub struct Detail<'a> {
    /// Whether every token counts, so that measures per word and byte mean something.
    pub text_measures: bool,
    /// The names of groups, and the group of each document as an index of them.
    pub groups: Option<(&'a [String], &'a [u32])>,
}

impl Default for Detail<'_> {
    /// As under plain `rolling`: with text measures, without groups.
    fn default() -> Self {
        Self {
            text_measures: true,
            groups: None,
        }
    }
}

/// The statistics of a finished dataset.
///
/// `documents` has one entry per document; `clusters` the sum and the count of each cluster of
/// `layout`. A measure whose divisor is 0 is none.
pub fn statistics(
    documents: &[DocumentFacts],
    layout: &ClusterLayout,
    clusters: &[(ExactSum, u64)],
    detail: &Detail<'_>,
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
    let text = |divisor| detail.text_measures.then(|| ratio(nll.nats(), divisor))?;

    let mut overflow = false;
    let mut exp = |mean: Option<f64>| {
        let value = mean?.exp();
        overflow |= value.is_infinite();
        value.is_finite().then_some(value)
    };
    let perplexity = exp(ratio(nll.nats(), scored_tokens));
    let word_perplexity = exp(text(words));
    let byte_perplexity = exp(text(bytes));
    let macro_perplexity = exp(mean_of_means(&per_document));

    let error = ClusteredError::of(clusters);
    let groups = detail.groups.map_or_else(Vec::new, |(names, groups)| {
        group_statistics(names, groups, &per_document)
    });
    let warnings = [error.warning(layout), group_warning(&groups)];
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
        bits_per_byte: text(bytes).map(|nats| nats / LN_2),
        macro_perplexity,
        standard_error: error.standard_error,
        confidence_95: error.confidence_95(),
        overflow,
        clusters: error.clusters,
        warnings: warnings.into_iter().flatten().collect(),
        spans: match layout {
            ClusterLayout::Documents { .. } => Vec::new(),
            ClusterLayout::Spans { .. } => clusters.to_vec(),
        },
        groups,
    }
}

/// The mean over documents with scored tokens of their mean NLL.
pub(crate) fn mean_of_means(documents: &[(ExactSum, u64)]) -> Option<f64> {
    let scored = || documents.iter().filter(|&&(_, scored)| scored > 0);
    let means = scored().map(|&(sum, scored)| sum.nats() / scored as f64);
    ratio(means.sum(), scored().count() as u64)
}

pub(crate) fn ratio(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::to_units;

    /// (nats, tokens, bytes, words) of six documents, one of them empty.
    const DOCUMENTS: [(f64, u64, u64, u64); 6] = [
        (12.5, 5, 20, 4),
        (0.0, 0, 3, 2),
        (30.25, 10, 44, 9),
        (7.75, 4, 15, 3),
        (21.0, 6, 25, 5),
        (40.5, 15, 61, 12),
    ];

    fn of(documents: &[(f64, u64, u64, u64)]) -> DatasetStatistics {
        let facts: Vec<_> = documents
            .iter()
            .map(|&(_, tokens, bytes, words)| DocumentFacts {
                tokens,
                bytes,
                words,
            })
            .collect();
        let layout = ClusterLayout::Documents {
            documents: u32::try_from(documents.len()).unwrap(),
        };
        let sums: Vec<_> = documents
            .iter()
            .map(|d| (to_units(d.0).unwrap().into(), d.1))
            .collect();
        statistics(&facts, &layout, &sums, &Detail::default())
    }

    fn assert_close(actual: Option<f64>, expected: f64) {
        let actual = actual.expect("a number");
        assert!(
            (actual / expected - 1.0).abs() < 1e-13,
            "{actual} is not {expected}"
        );
    }

    /// Reference values from exact fractions and 40 digits (Python's fractions and mpmath); the
    /// standard error there by the expanded sum of squares `A - 2 m B + m^2 C`.
    #[test]
    fn measures_equal_exact_arithmetic() {
        let s = of(&DOCUMENTS);
        assert_eq!((s.documents, s.unscored_documents), (6, 1));
        assert_eq!(
            (s.tokens, s.scored_tokens, s.words, s.bytes),
            (40, 40, 33, 165)
        );
        assert_eq!(s.nll, ExactSum::from(112 << 32));
        assert_close(s.perplexity, 16.444_646_771_097_05);
        assert_close(s.word_perplexity, 29.783_048_635_872_263);
        assert_close(s.byte_perplexity, 1.971_486_602_623_297_7);
        assert_close(s.bits_per_byte, 0.979_283_906_542_811_5);
        assert_close(s.macro_perplexity, 15.371_267_192_683_26);
        assert_close(s.standard_error, 0.174_787_817_796_321_26);
        assert_close(s.confidence_95, 0.485_288_781_168_800_1);
        assert!(!s.overflow);
        assert_eq!(s.clusters, 5);
        assert!(
            s.warnings[0].contains("only 5 documents"),
            "{:?}",
            s.warnings
        );
    }

    /// With equal counts the estimator is the textbook one: the sample deviation of the cluster
    /// means over the square root of their number.
    #[test]
    fn equal_clusters_give_the_textbook_error() {
        let means: Vec<f64> = (0..24).map(|i| 2.0 + f64::from(i * 7 % 11) / 8.0).collect();
        let documents: Vec<_> = means.iter().map(|m| (m * 16.0, 16, 60, 10)).collect();
        let s = of(&documents);
        let n = means.len() as f64;
        let mean = means.iter().sum::<f64>() / n;
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (n - 1.0);
        assert_close(s.standard_error, (variance / n).sqrt());
        assert_eq!(s.warnings, [""; 0]);
    }

    #[test]
    fn few_clusters_have_no_error() {
        let s = of(&DOCUMENTS[..5]);
        assert_eq!(
            (s.clusters, s.standard_error, s.confidence_95),
            (4, None, None)
        );
        assert!(
            s.warnings[0].starts_with("no standard error"),
            "{:?}",
            s.warnings
        );
    }

    #[test]
    fn a_lone_document_is_judged_by_its_spans() {
        let layout = ClusterLayout::of(&[0, 100]);
        let sums: Vec<_> = (0..50)
            .map(|span| (ExactSum::from((3 + span % 2) << 32), 2))
            .collect();
        let facts = [(0, 0, 1), (100, 400, 80)].map(|(tokens, bytes, words)| DocumentFacts {
            tokens,
            bytes,
            words,
        });
        let s = statistics(&facts, &layout, &sums, &Detail::default());
        assert_eq!((s.clusters, s.unscored_documents, s.words), (50, 1, 80));
        assert_eq!(s.spans, sums);
        assert_close(s.perplexity, 1.75_f64.exp());
        assert_close(s.macro_perplexity, 1.75_f64.exp());
        // Every span is half a nat off the mean of 3.5: sqrt(50/49 * 50 * 0.25) / 100.
        assert_close(s.standard_error, (50.0 / 49.0 * 12.5_f64).sqrt() / 100.0);
    }

    #[test]
    fn an_overflow_is_null_and_said() {
        let s = of(&[(7000.0, 10, 10_000, 5), (7000.0, 10, 10_000, 5)]);
        assert_close(s.perplexity, 700.0_f64.exp());
        assert_eq!((s.word_perplexity, s.overflow), (None, true));
        assert_close(s.byte_perplexity, 0.7_f64.exp());
        assert_eq!(s.nll, ExactSum::from(14_000 << 32));
    }

    #[test]
    fn without_text_measures_only_tokens_are_measured() {
        let facts = [DocumentFacts {
            tokens: 9,
            bytes: 1,
            words: 1,
        }];
        let layout = ClusterLayout::Documents { documents: 1 };
        let sums = [(to_units(900.0).unwrap().into(), 9)];
        let detail = Detail {
            text_measures: false,
            groups: None,
        };
        let s = statistics(&facts, &layout, &sums, &detail);
        assert_close(s.perplexity, 100_f64.exp());
        assert_eq!(
            (s.word_perplexity, s.byte_perplexity, s.bits_per_byte),
            (None, None, None)
        );
        // exp(900) per word would overflow; it is not asked for.
        assert!(!s.overflow);
        assert!(statistics(&facts, &layout, &sums, &Detail::default()).overflow);
    }

    #[test]
    fn groups_stand_beside_the_whole() {
        let layout = ClusterLayout::Documents { documents: 2 };
        let facts = [DocumentFacts {
            tokens: 4,
            bytes: 9,
            words: 2,
        }; 2];
        let sums = [1.0, 2.0].map(|nats| (to_units(nats).unwrap().into(), 4));
        let names = ["b", "a"].map(str::to_owned);
        let detail = Detail {
            groups: Some((&names, &[0, 1])),
            ..Detail::default()
        };
        let s = statistics(&facts, &layout, &sums, &detail);
        let groups: Vec<_> = s.groups.iter().map(|g| (g.name.as_str(), g.nll)).collect();
        assert_eq!(
            groups,
            [
                ("a", ExactSum::from(2 << 32)),
                ("b", ExactSum::from(1 << 32))
            ]
        );
        let plain = statistics(&facts, &layout, &sums, &Detail::default());
        assert_eq!(
            DatasetStatistics {
                groups: Vec::new(),
                ..s
            },
            plain
        );
    }

    /// Rows of version 0.1 have neither groups nor spans.
    #[test]
    fn older_rows_are_read() {
        let s = of(&DOCUMENTS);
        let json = serde_json::to_value(&s).unwrap();
        assert_eq!((json.get("groups"), json.get("spans")), (None, None));
        assert_eq!(
            serde_json::from_value::<DatasetStatistics>(json).unwrap(),
            s
        );
    }

    #[test]
    fn nothing_scored_is_no_number() {
        let s = of(&[(0.0, 0, 3, 1)]);
        assert_eq!(
            (s.perplexity, s.bits_per_byte, s.macro_perplexity),
            (None, None, None)
        );
        assert!(!s.overflow);
    }
}
