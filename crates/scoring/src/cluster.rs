//! Clusters: the groups whose sums the standard error is taken over, and that shards report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exact::{ExactSum, NllError, to_units};

/// Spans that a lone document is cut into.
const SPANS: u64 = 50;

/// Which cluster the NLL of a counted token goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum ClusterLayout {
    /// One cluster per document, numbered alike.
    Documents {
        /// Documents of the dataset.
        documents: u32,
    },
    /// Only one document has tokens: equal contiguous spans of it are the clusters.
    Spans {
        /// The document that has tokens.
        document: u32,
        /// Documents of the dataset.
        documents: u32,
        /// Tokens of the document, all of them counted.
        tokens: u64,
        /// Spans.
        spans: u32,
    },
}

impl ClusterLayout {
    /// The layout of documents of `lengths` tokens that are all counted.
    ///
    /// With exactly one document that has tokens, its `n` tokens form `min(50, n)` spans.
    pub fn of(lengths: &[u64]) -> Self {
        let documents = u32::try_from(lengths.len()).unwrap_or(u32::MAX);
        let mut scored = (0_u32..).zip(lengths).filter(|&(_, &tokens)| tokens > 0);
        match (scored.next(), scored.next()) {
            (Some((document, &tokens)), None) => Self::Spans {
                document,
                documents,
                tokens,
                spans: u32::try_from(tokens.min(SPANS)).expect("at most SPANS"),
            },
            _ => Self::Documents { documents },
        }
    }

    /// The cluster of token `token` of document `document`: with spans, `token * spans / tokens`.
    pub fn cluster(&self, document: u32, token: u64) -> u32 {
        match *self {
            Self::Documents { .. } => document,
            Self::Spans { tokens, spans, .. } => {
                let span = u128::from(token) * u128::from(spans) / u128::from(tokens.max(1));
                u32::try_from(span).unwrap_or(u32::MAX)
            }
        }
    }

    /// Number of clusters.
    pub fn len(&self) -> u32 {
        match *self {
            Self::Documents { documents } => documents,
            Self::Spans { spans, .. } => spans,
        }
    }

    /// Whether there is no cluster.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Sums and counts per document, from those per cluster (indexed by cluster).
pub fn document_sums(layout: &ClusterLayout, clusters: &[(ExactSum, u64)]) -> Vec<(ExactSum, u64)> {
    match *layout {
        ClusterLayout::Documents { .. } => clusters.to_vec(),
        ClusterLayout::Spans {
            document,
            documents,
            ..
        } => {
            let total = total(clusters);
            (0..documents)
                .map(|index| {
                    if index == document {
                        total
                    } else {
                        (ExactSum::default(), 0)
                    }
                })
                .collect()
        }
    }
}

/// The sum and count over all clusters.
pub(crate) fn total(clusters: &[(ExactSum, u64)]) -> (ExactSum, u64) {
    clusters
        .iter()
        .fold((ExactSum::default(), 0), |(sum, n), &(nll, scored)| {
            (sum + nll, n + scored)
        })
}

/// What one shard adds to one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSum {
    /// The cluster.
    pub cluster: u32,
    /// The sum in units of 2^-32 nat.
    pub units: i64,
    /// Tokens counted.
    pub scored: u64,
}

/// The sums of one shard, or of a part of it, per cluster touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardSums(BTreeMap<u32, (i64, u64)>);

impl ShardSums {
    /// Counts one token.
    ///
    /// # Errors
    /// The errors of [`to_units`], and [`NllError::SumOutOfRange`] once the cluster's sum leaves
    /// 64 bits. The sums are then of no use: part of the shard is missing.
    pub fn add(&mut self, cluster: u32, nll: f64) -> Result<(), NllError> {
        self.add_units(cluster, to_units(nll)?, 1)
    }

    /// Adds the sums of another part of the same shard.
    ///
    /// # Errors
    /// [`NllError::SumOutOfRange`], as for [`ShardSums::add`].
    pub fn merge(&mut self, other: &Self) -> Result<(), NllError> {
        other
            .0
            .iter()
            .try_for_each(|(&cluster, &(units, n))| self.add_units(cluster, units, n))
    }

    fn add_units(&mut self, cluster: u32, units: i64, scored: u64) -> Result<(), NllError> {
        let entry = self.0.entry(cluster).or_default();
        entry.0 = entry
            .0
            .checked_add(units)
            .ok_or(NllError::SumOutOfRange { cluster })?;
        entry.1 += scored;
        Ok(())
    }

    /// The sums, ordered by cluster.
    pub fn into_vec(self) -> Vec<ClusterSum> {
        self.0
            .into_iter()
            .map(|(cluster, (units, scored))| ClusterSum {
                cluster,
                units,
                scored,
            })
            .collect()
    }

    /// Tokens counted in all clusters.
    pub fn scored(&self) -> u64 {
        self.0.values().map(|&(_, scored)| scored).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_clusters_unless_one_stands_alone() {
        assert_eq!(
            ClusterLayout::of(&[3, 0, 5]),
            ClusterLayout::Documents { documents: 3 }
        );
        assert_eq!(
            ClusterLayout::of(&[0, 0]),
            ClusterLayout::Documents { documents: 2 }
        );
        assert!(ClusterLayout::of(&[]).is_empty());
        let lone = ClusterLayout::of(&[0, 120]);
        assert_eq!(
            lone,
            ClusterLayout::Spans {
                document: 1,
                documents: 2,
                tokens: 120,
                spans: 50
            }
        );
        assert_eq!(lone.len(), 50);
        let short = ClusterLayout::of(&[7]);
        assert_eq!(
            (0..7).map(|k| short.cluster(0, k)).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4, 5, 6]
        );
    }

    #[test]
    fn spans_are_contiguous_and_equal_within_one_token() {
        let layout = ClusterLayout::of(&[1234]);
        let clusters: Vec<u32> = (0..1234).map(|k| layout.cluster(0, k)).collect();
        assert!(clusters.is_sorted());
        for span in 0..50 {
            let size = clusters.iter().filter(|&&c| c == span).count();
            assert!((24..=25).contains(&size), "span {span} has {size} tokens");
        }
    }

    #[test]
    fn spans_add_up_to_their_document() {
        let layout = ClusterLayout::of(&[0, 3, 0]);
        let clusters = [
            (ExactSum::from(5), 1),
            (ExactSum::from(6), 1),
            (ExactSum::from(-1), 1),
        ];
        let nothing = (ExactSum::default(), 0);
        assert_eq!(
            document_sums(&layout, &clusters),
            [nothing, (ExactSum::from(10), 3), nothing]
        );
    }

    #[test]
    fn a_sum_that_leaves_64_bits_is_an_error() {
        let mut sums = ShardSums::default();
        sums.add(4, 2_147_483_647.0).unwrap();
        let mut half = ShardSums::default();
        half.add(4, 2_147_483_647.0).unwrap();
        assert_eq!(
            sums.clone().add(4, 2.0),
            Err(NllError::SumOutOfRange { cluster: 4 })
        );
        assert_eq!(
            sums.merge(&half),
            Err(NllError::SumOutOfRange { cluster: 4 })
        );
    }

    #[test]
    fn the_layout_travels_tagged() {
        let layout = ClusterLayout::of(&[9]);
        let json = serde_json::to_value(&layout).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"by": "spans", "document": 0, "documents": 1, "tokens": 9, "spans": 9})
        );
        assert_eq!(
            serde_json::from_value::<ClusterLayout>(json).unwrap(),
            layout
        );
    }
}
