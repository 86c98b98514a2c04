//! What a plan is made of: the tokens of a dataset under a convention, and which may count.

use std::ops::Range;

use crate::convention::Convention;
use crate::error::PlanError;

/// The tokens of a dataset, and which of them may count.
///
/// Under a joined convention the documents are contiguous ranges of one stream; under `rolling`
/// each document is a stream of its own.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// How tokens become windows.
    pub convention: Convention,
    /// Tokens of each document.
    pub lengths: &'a [u64],
    /// Whether token index -1 exists: a prefix before each document, or a BOS before the joined
    /// text.
    pub prefix: bool,
    /// Per document: sorted disjoint ranges of the token indices that may count; without it all
    /// may. Only under `rolling`.
    pub counted: Option<&'a [Vec<Range<u64>>]>,
}

impl Scope<'_> {
    /// Refuses what cannot be planned; `dataset` is for the message.
    pub(crate) fn check(&self, dataset: usize) -> Result<(), PlanError> {
        self.convention.check()?;
        let documents = self.lengths.len();
        if u32::try_from(documents).is_err() {
            return Err(PlanError::TooManyDocuments { dataset, documents });
        }
        let Some(counted) = self.counted else {
            return Ok(());
        };
        let invalid = |detail| Err(PlanError::CountedInvalid { dataset, detail });
        if self.convention.is_joined() {
            return invalid(format!("`{}` counts by position alone", self.convention));
        }
        if counted.len() != documents {
            return invalid(format!("{} lists for {documents} documents", counted.len()));
        }
        for (document, (ranges, &tokens)) in counted.iter().zip(self.lengths).enumerate() {
            let mut end = 0;
            for range in ranges {
                if range.start < end || range.end <= range.start || range.end > tokens {
                    return invalid(format!(
                        "the range {range:?} of document {document}, which has {tokens} tokens, is \
                         empty, outside or out of order"
                    ));
                }
                end = range.end;
            }
        }
        Ok(())
    }

    /// The tokens of each stream.
    pub(crate) fn streams(&self) -> Vec<u64> {
        if self.convention.is_joined() {
            vec![self.lengths.iter().copied().fold(0, u64::saturating_add)]
        } else {
            self.lengths.to_vec()
        }
    }

    /// The position of token 0: positions are token indices plus this.
    pub(crate) fn offset(&self) -> u64 {
        u64::from(self.prefix)
    }

    /// The parts of `span` in stream `stream` that may count, in order, none of them empty.
    pub(crate) fn counted(
        &self,
        stream: usize,
        span: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let ranges = self.counted.map(|documents| {
            let ranges = documents.get(stream).map_or(&[][..], Vec::as_slice);
            &ranges[ranges.partition_point(|range| range.end <= span.start)..]
        });
        let whole = ranges.is_none().then(|| span.clone());
        let Range { start, end } = span;
        ranges
            .unwrap_or_default()
            .iter()
            .take_while(move |range| range.start < end)
            .map(move |range| range.start.max(start)..range.end.min(end))
            .chain(whole)
            .filter(|range| !range.is_empty())
    }
}

/// Tokens of disjoint ranges.
pub(crate) fn tokens(ranges: impl Iterator<Item = Range<u64>>) -> u64 {
    ranges.map(|range| range.end - range.start).sum()
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a mask may be one range
mod tests {
    use super::*;

    const ROLLING: Convention = Convention::Rolling { window: 4 };

    fn scope<'a>(lengths: &'a [u64], counted: Option<&'a [Vec<Range<u64>>]>) -> Scope<'a> {
        Scope {
            convention: ROLLING,
            lengths,
            prefix: true,
            counted,
        }
    }

    #[test]
    fn counted_parts_are_the_overlap() {
        let masks = [vec![2..5, 7..8], vec![]];
        let scope = scope(&[10, 3], Some(&masks));
        let parts = |stream, span| scope.counted(stream, span).collect::<Vec<_>>();
        assert_eq!(parts(0, 0..10), [2..5, 7..8]);
        assert_eq!(parts(0, 3..7), [3..5]);
        assert_eq!(parts(0, 5..7), []);
        assert_eq!(parts(0, 4..8), [4..5, 7..8]);
        assert_eq!(parts(1, 0..3), []);
        assert_eq!(tokens(scope.counted(0, 0..10)), 4);
    }

    #[test]
    fn without_a_mask_the_whole_span_counts() {
        let scope = scope(&[10], None);
        assert_eq!(scope.counted(0, 3..7).collect::<Vec<_>>(), [3..7]);
        assert_eq!(scope.counted(0, 3..3).count(), 0);
    }

    #[test]
    fn masks_that_mean_nothing_are_refused() {
        let bad: [(&[Vec<Range<u64>>], &str); 6] = [
            (&[vec![0..1]], "1 lists for 2 documents"),
            (
                &[vec![0..4], vec![]],
                "0..4 of document 0, which has 3 tokens",
            ),
            (&[vec![], vec![2..2]], "2..2 of document 1"),
            (&[vec![], vec![3..5, 4..5]], "4..5 of document 1"),
            (&[vec![], vec![3..5, 0..1]], "0..1 of document 1"),
            (&[vec![], vec![0..u64::MAX]], "of document 1"),
        ];
        for (masks, text) in bad {
            let error = scope(&[3, 5], Some(masks))
                .check(7)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(text) && error.contains("dataset 7"),
                "{error}"
            );
        }
        let masks = [vec![0..1, 1..3], vec![4..5]];
        assert_eq!(scope(&[3, 5], Some(&masks)).check(0), Ok(()));
        let joined = Scope {
            convention: Convention::LlamaCpp { window: 4 },
            ..scope(&[3, 5], Some(&masks))
        };
        let error = joined.check(0).unwrap_err().to_string();
        assert!(
            error.contains("`llamacpp` counts by position alone"),
            "{error}"
        );
    }
}
