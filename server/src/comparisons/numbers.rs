//! The numbers of two rows, document by document.

use std::collections::BTreeMap;

use assay_api::{
    DatasetComparison, DocumentChange, DocumentRow, ErrorCode, GroupComparison, Method,
    PairedDifference, Unit,
};
use assay_scoring::{ClusterLayout, ExactSum, Pair, paired_difference};

use super::matching::Match;
use super::{Side, verdict};
use crate::error::ApiError;

/// Clusters below which an interval comes with a warning.
const FEW_CLUSTERS: u32 = 20;

/// Two rows, but for their documents.
pub(super) struct Rows {
    name: String,
    baseline_name: Option<String>,
    method: Method,
    unit: Unit,
    /// Tokens counted in the baseline.
    baseline_tokens: u64,
    /// The sums of the spans of one document, where those are the clusters of both.
    spans: Option<Vec<Pair>>,
}

/// A document in both.
struct Document<'a> {
    row: &'a DocumentRow,
    pair: Pair,
}

impl Rows {
    pub(super) fn of(found: &Match, baseline: &Side, candidate: &Side) -> Self {
        let row = &candidate.result.datasets[found.candidate];
        let before = &baseline.result.datasets[found.baseline];
        let facts = &candidate.facts[found.candidate];
        let other = &baseline.facts[found.baseline];
        let are_spans = matches!(facts.clusters, Some(ClusterLayout::Spans { .. }))
            && facts.clusters == other.clusters
            && found.unit == Unit::Token;
        let same_counts = |(now, before): (&(ExactSum, u64), &(ExactSum, u64))| now.1 == before.1;
        let spans = (are_spans
            && facts.spans.len() == other.spans.len()
            && !facts.spans.is_empty()
            && facts.spans.iter().zip(&other.spans).all(same_counts))
        .then(|| {
            let both = other.spans.iter().zip(&facts.spans);
            both.map(|(&(baseline, units), &(candidate, _))| Pair {
                baseline,
                candidate,
                units,
            })
            .collect()
        });
        Self {
            name: row.name.clone(),
            baseline_name: (before.name != row.name).then(|| before.name.clone()),
            method: row.method.clone(),
            unit: found.unit,
            baseline_tokens: before.scored_tokens,
            spans,
        }
    }

    /// The comparison, with `listed` documents that got worst and best, and a verdict by the
    /// largest increase per token if there is one; and what to say of it.
    ///
    /// # Errors
    /// The documents are not the same.
    pub(super) fn compare(
        self,
        before: &[DocumentRow],
        now: &[DocumentRow],
        max_increase: Option<f64>,
        listed: usize,
    ) -> Result<(DatasetComparison, Option<String>), ApiError> {
        let documents = self.pair(before, now)?;
        let whole: Vec<Pair> = documents.iter().map(|document| document.pair).collect();
        let count = documents.len() as u64;
        let difference = to_api(count, self.spans.as_deref().unwrap_or(&whole));
        let limit = max_increase.map(|nats| match self.unit {
            Unit::Token => nats,
            Unit::Byte => nats * self.baseline_tokens as f64 / difference.units as f64,
        });
        let judged = limit.map(|limit| verdict::judge(&difference, limit, self.unit));
        let (verdict, reason) = judged.unzip();
        let (worst, best) = changes(&documents, listed);
        let warning = (difference.standard_error.is_some() && difference.clusters < FEW_CLUSTERS)
            .then(|| {
                format!(
                    "{}: the interval rests on only {} clusters, fewer than {FEW_CLUSTERS}, and \
                     may be too narrow",
                    self.name, difference.clusters
                )
            });
        let compared = DatasetComparison {
            name: self.name,
            baseline_name: self.baseline_name,
            method: self.method,
            unit: self.unit,
            difference,
            max_increase: limit,
            verdict,
            reason,
            groups: groups(&documents),
            worst,
            best,
        };
        Ok((compared, warning))
    }

    fn pair<'a>(
        &self,
        before: &[DocumentRow],
        now: &'a [DocumentRow],
    ) -> Result<Vec<Document<'a>>, ApiError> {
        if before.len() != now.len() {
            return Err(self.differ(&format!(
                "has {} documents, in the baseline {}",
                now.len(),
                before.len()
            )));
        }
        now.iter()
            .zip(before)
            .map(|(row, before)| {
                let counts = |row: &DocumentRow| match self.unit {
                    Unit::Token => (row.bytes, row.scored_tokens),
                    Unit::Byte => (row.bytes, 0),
                };
                if counts(row) != counts(before) {
                    return Err(self.differ(&format!(
                        "document {} has {} bytes and {} counted tokens, in the baseline {} and {}",
                        row.index, row.bytes, row.scored_tokens, before.bytes, before.scored_tokens
                    )));
                }
                let units = match self.unit {
                    Unit::Token => row.scored_tokens,
                    Unit::Byte if row.scored_tokens + before.scored_tokens > 0 => row.bytes,
                    Unit::Byte => 0,
                };
                let pair = Pair {
                    baseline: sum(before)?,
                    candidate: sum(row)?,
                    units,
                };
                Ok(Document { row, pair })
            })
            .collect()
    }

    fn differ(&self, detail: &str) -> ApiError {
        ApiError::of_field(
            ErrorCode::NotComparable,
            format!("datasets.{}", self.name),
            detail,
        )
    }
}

fn sum(row: &DocumentRow) -> Result<ExactSum, ApiError> {
    row.nll_exact
        .parse()
        .map_err(|_| ApiError::Internal(format!("the sum {:?} is no integer", row.nll_exact)))
}

fn to_api(documents: u64, pairs: &[Pair]) -> PairedDifference {
    let paired = paired_difference(pairs);
    let mean = |sum: ExactSum| (paired.units > 0).then(|| sum.nats() / paired.units as f64);
    let ratio = paired.mean.map(f64::exp).filter(|ratio| ratio.is_finite());
    PairedDifference {
        documents,
        units: paired.units,
        baseline_mean_nll: mean(paired.baseline),
        candidate_mean_nll: mean(paired.candidate),
        difference: paired.mean,
        nll_difference_exact: paired.difference.to_string(),
        perplexity_ratio: ratio,
        standard_error: paired.standard_error,
        confidence_95: paired.confidence_95,
        clusters: paired.clusters,
        worse: paired.worse,
        better: paired.better,
        equal: paired.equal,
        sign_test_p: paired.sign_test_p,
    }
}

/// The numbers of each group, by name.
fn groups(documents: &[Document<'_>]) -> Vec<GroupComparison> {
    let mut groups: BTreeMap<&str, Vec<Pair>> = BTreeMap::new();
    for document in documents {
        if let Some(group) = &document.row.group {
            groups.entry(group).or_default().push(document.pair);
        }
    }
    groups
        .into_iter()
        .map(|(name, pairs)| GroupComparison {
            name: name.to_owned(),
            difference: to_api(pairs.len() as u64, &pairs),
        })
        .collect()
}

/// The documents whose mean rose most, and those whose mean fell most, `listed` of each at most.
fn changes(
    documents: &[Document<'_>],
    listed: usize,
) -> (Vec<DocumentChange>, Vec<DocumentChange>) {
    let of_sign = |sign: fn(ExactSum, ExactSum) -> bool| {
        let changed = documents
            .iter()
            .filter(|d| d.pair.units > 0 && sign(d.pair.candidate, d.pair.baseline));
        let mut changed: Vec<DocumentChange> = changed.map(change).collect();
        changed.sort_by(|a, b| {
            let order = b.difference.abs().total_cmp(&a.difference.abs());
            order.then(a.index.cmp(&b.index))
        });
        changed.truncate(listed);
        changed
    };
    (
        of_sign(|now, before| now > before),
        of_sign(|now, before| now < before),
    )
}

fn change(document: &Document<'_>) -> DocumentChange {
    let Document { row, pair } = document;
    let mean = |sum: ExactSum| sum.nats() / pair.units as f64;
    DocumentChange {
        index: row.index,
        group: row.group.clone(),
        units: pair.units,
        baseline_mean_nll: mean(pair.baseline),
        candidate_mean_nll: mean(pair.candidate),
        difference: mean(pair.candidate - pair.baseline),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(index: u64, scored_tokens: u64, bytes: u64, nll: i64) -> DocumentRow {
        DocumentRow {
            index,
            tokens: scored_tokens,
            scored_tokens,
            bytes,
            words: 1,
            nll: nll as f64,
            nll_exact: (i128::from(nll) << 32).to_string(),
            group: Some(
                if index.is_multiple_of(2) {
                    "even"
                } else {
                    "odd"
                }
                .to_owned(),
            ),
        }
    }

    fn rows(unit: Unit) -> Rows {
        Rows {
            name: "d".to_owned(),
            baseline_name: None,
            method: Method::rolling(8),
            unit,
            baseline_tokens: 30,
            spans: None,
        }
    }

    const BEFORE: [i64; 6] = [10, 10, 10, 0, 10, 10];
    const NOW: [i64; 6] = [20, 30, 5, 0, 10, 12];

    fn documents(sums: [i64; 6], tokens: u64) -> Vec<DocumentRow> {
        let rows = (0..).zip(sums).map(|(index, nll)| {
            let tokens = if nll == 0 { 0 } else { tokens };
            document(index, tokens, 40, nll)
        });
        rows.collect()
    }

    #[test]
    fn documents_are_paired_and_listed() {
        let (d, warning) = rows(Unit::Token)
            .compare(&documents(BEFORE, 10), &documents(NOW, 10), Some(0.1), 2)
            .unwrap();
        let numbers = &d.difference;
        assert_eq!(
            (numbers.documents, numbers.units, numbers.clusters),
            (6, 50, 5)
        );
        assert_eq!((numbers.worse, numbers.better, numbers.equal), (3, 1, 1));
        assert_eq!(numbers.nll_difference_exact, (27_i64 << 32).to_string());
        assert_eq!(numbers.difference, Some(27.0 / 50.0));
        let order = |list: &[DocumentChange]| list.iter().map(|d| d.index).collect::<Vec<_>>();
        assert_eq!((order(&d.worst), order(&d.best)), (vec![1, 0], vec![2]));
        assert_eq!((d.worst[0].difference, d.best[0].difference), (2.0, -0.5));
        let names: Vec<_> = d
            .groups
            .iter()
            .map(|g| (&*g.name, g.difference.units))
            .collect();
        assert_eq!(names, [("even", 30), ("odd", 20)]);
        assert_eq!(d.max_increase, Some(0.1));
        assert!(warning.unwrap().contains("only 5 clusters"));
    }

    /// Of the same bytes in other tokens. The limit of 0.1 nat a token is 3 nats over all 30 tokens
    /// of the baseline, and so 0.015 nat for each of the 200 bytes.
    #[test]
    fn other_tokens_are_compared_by_byte() {
        let (d, _) = rows(Unit::Byte)
            .compare(&documents(BEFORE, 6), &documents(NOW, 9), Some(0.1), 1)
            .unwrap();
        assert_eq!(
            (d.difference.units, d.difference.difference),
            (200, Some(27.0 / 200.0))
        );
        assert!((d.max_increase.unwrap() - 0.015).abs() < 1e-15);
        assert_eq!(d.worst[0].units, 40);
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = |before: &[DocumentRow], words: &str| {
            let Err(ApiError::Problem(problem)) =
                rows(Unit::Token).compare(before, &documents(NOW, 10), None, 1)
            else {
                panic!("{words}")
            };
            assert_eq!(problem.code, ErrorCode::NotComparable);
            assert_eq!(problem.errors[0].field, "datasets.d");
            assert!(problem.detail.contains(words), "{}", problem.detail);
        };
        refused(
            &documents(BEFORE, 10)[..5],
            "has 6 documents, in the baseline 5",
        );
        refused(
            &documents(BEFORE, 9),
            "40 bytes and 10 counted tokens, in the baseline 40 and 9",
        );
    }

    #[test]
    fn spans_are_the_clusters_of_one_document() {
        let pair = Pair {
            baseline: ExactSum::from(1 << 32),
            candidate: ExactSum::from(2 << 32),
            units: 2,
        };
        let of_spans = Rows {
            spans: Some(vec![pair; 20]),
            ..rows(Unit::Token)
        };
        let one = |nll| [document(0, 40, 100, nll)];
        let (d, warning) = of_spans.compare(&one(20), &one(40), None, 5).unwrap();
        let numbers = &d.difference;
        assert_eq!(
            (numbers.documents, numbers.clusters, numbers.worse),
            (1, 20, 20)
        );
        assert_eq!(
            (numbers.difference, numbers.standard_error),
            (Some(0.5), Some(0.0))
        );
        assert_eq!((d.worst.len(), d.verdict, warning), (1, None, None));
    }
}
