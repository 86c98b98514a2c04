//! Clusters: what the standard error is taken over, and what shards report the sums of.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::exact::ExactSum;
use crate::scope::Scope;
use crate::window::Window;

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
    /// Only one document has counted tokens: equal contiguous spans are the clusters, of what lies
    /// between the first and the last counted token.
    Spans {
        /// The document that has counted tokens.
        document: u32,
        /// Documents of the dataset.
        documents: u32,
        /// Index of the first counted token in its stream: the document, or the joined text.
        #[serde(default, skip_serializing_if = "is_zero")]
        first: u64,
        /// Tokens from there to the last counted one.
        tokens: u64,
        /// Spans.
        spans: u32,
    },
}

// serde's `skip_serializing_if` hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(index: &u64) -> bool {
    *index == 0
}

impl ClusterLayout {
    /// The layout of documents of `lengths` tokens that are all counted, each a stream of its own.
    ///
    /// With exactly one document that has tokens, its `n` tokens form `min(50, n)` spans.
    pub fn of(lengths: &[u64]) -> Self {
        let lone = lengths.iter().copied().max().unwrap_or(0);
        Self::new(lengths, 0..lone)
    }

    /// The layout of what `windows` count of `scope`.
    pub(crate) fn of_windows<'a>(
        scope: &Scope<'_>,
        windows: impl Iterator<Item = &'a Window>,
    ) -> Self {
        let mut scored = vec![0; scope.lengths.len()];
        let (mut first, mut end) = (u64::MAX, 0);
        let owners = Owners::of(scope);
        for window in windows {
            for part in scope.counted(window.document as usize, window.from..window.to) {
                (first, end) = (first.min(part.start), end.max(part.end));
                owners.share(window.document as usize, part, &mut scored);
            }
        }
        Self::new(&scored, first..end)
    }

    /// The layout of documents with `scored` counted tokens, which lie within `indices` of their
    /// stream if there is one such document.
    fn new(scored: &[u64], indices: Range<u64>) -> Self {
        let documents = u32::try_from(scored.len()).unwrap_or(u32::MAX);
        let mut having = (0_u32..).zip(scored).filter(|&(_, &tokens)| tokens > 0);
        match (having.next(), having.next()) {
            (Some((document, &scored)), None) => Self::Spans {
                document,
                documents,
                first: indices.start,
                tokens: indices.end - indices.start,
                spans: u32::try_from(scored.min(SPANS)).expect("at most SPANS"),
            },
            _ => Self::Documents { documents },
        }
    }

    /// The cluster of a counted token of document `document`, its owner; `token` is its index in
    /// its stream. With spans, `(token - first) * spans / tokens`.
    pub fn cluster(&self, document: u32, token: u64) -> u32 {
        match *self {
            Self::Documents { .. } => document,
            Self::Spans {
                first,
                tokens,
                spans,
                ..
            } => {
                let token = token.saturating_sub(first);
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

/// Which document each token of a stream belongs to.
struct Owners {
    /// One past the last token of each document in the joined stream; none where each document is
    /// a stream.
    ends: Option<Vec<u64>>,
}

impl Owners {
    fn of(scope: &Scope<'_>) -> Self {
        let ends = scope.lengths.iter().scan(0_u64, |end, &tokens| {
            *end = end.saturating_add(tokens);
            Some(*end)
        });
        Self {
            ends: scope.convention.is_joined().then(|| ends.collect()),
        }
    }

    /// Adds the tokens of `part`, which lie in stream `stream`, to their documents.
    fn share(&self, stream: usize, part: Range<u64>, scored: &mut [u64]) {
        let Some(ends) = &self.ends else {
            scored[stream] += part.end - part.start;
            return;
        };
        let mut from = part.start;
        let first = ends.partition_point(|&end| end <= from);
        for (&end, scored) in ends.iter().zip(scored).skip(first) {
            let to = end.min(part.end);
            *scored += to - from;
            from = to;
            if from == part.end {
                break;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convention::Convention;

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
                first: 0,
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

    /// Token 0 opens a block and the documents around the second have no counted token.
    #[test]
    fn spans_lie_where_tokens_count() {
        let scope = Scope {
            convention: Convention::Blocks {
                window: 6,
                score_tail: false,
            },
            lengths: &[1, 5, 0, 2],
            prefix: false,
            counted: None,
        };
        let window = Window {
            document: 0,
            start: 0,
            len: 6,
            from: 1,
            to: 6,
        };
        let layout = ClusterLayout::of_windows(&scope, [window].iter());
        assert_eq!(
            layout,
            ClusterLayout::Spans {
                document: 1,
                documents: 4,
                first: 1,
                tokens: 5,
                spans: 5
            }
        );
        let clusters: Vec<u32> = (1..6).map(|token| layout.cluster(1, token)).collect();
        assert_eq!(clusters, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_joined_window_is_shared_by_its_owners() {
        let scope = Scope {
            convention: Convention::Strided {
                window: 8,
                stride: 4,
            },
            lengths: &[3, 0, 2, 4],
            prefix: false,
            counted: None,
        };
        let owners = Owners::of(&scope);
        let shared = |part| {
            let mut scored = [0; 4];
            owners.share(0, part, &mut scored);
            scored
        };
        assert_eq!(shared(0..9), [3, 0, 2, 4]);
        assert_eq!(shared(2..4), [1, 0, 1, 0]);
        assert_eq!(shared(3..5), [0, 0, 2, 0]);
        assert_eq!(shared(7..8), [0, 0, 0, 1]);
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
