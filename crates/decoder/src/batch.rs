//! The layout of a ragged micro-batch: which row of the matrices is which token.

use std::ops::Range;

use crate::{DecoderError, MIN_GEMM_ROWS};

/// One window: its input, and the targets that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// Token ids the model reads, from position 0.
    pub input: Vec<u32>,
    /// Input positions whose outputs count, strictly increasing.
    pub positions: Vec<u32>,
    /// Token ids predicted by the outputs at `positions`, as many.
    pub targets: Vec<u32>,
}

/// Windows of equal length, which attention takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// First row.
    pub(crate) start: i64,
    /// Number of windows.
    pub(crate) windows: i64,
    /// Rows of one window.
    pub(crate) len: i64,
}

impl Group {
    /// The rows of each of its windows.
    pub(crate) fn windows(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let of = |size: i64| usize::try_from(size).unwrap_or(0);
        let (start, len) = (of(self.start), of(self.len));
        (0..of(self.windows)).map(move |index| start + index * len..start + (index + 1) * len)
    }
}

/// A micro-batch as rows: the windows one after the other, those of equal length side by side,
/// then padding up to [`MIN_GEMM_ROWS`].
#[derive(Debug)]
pub(crate) struct Batch {
    /// Token id of each row; 0 in padding.
    pub(crate) ids: Vec<i64>,
    /// Position in its window of each row; 0 in padding. Integers below 2^24, so exact.
    pub(crate) positions: Vec<f32>,
    /// The groups, which cover all rows but the padding.
    pub(crate) groups: Vec<Group>,
    /// Rows whose output counts, and the targets they predict.
    pub(crate) counted: Vec<i64>,
    pub(crate) targets: Vec<i64>,
    /// Index in the micro-batch of each window, in the order of the rows.
    order: Vec<usize>,
}

impl Batch {
    /// Lays out `micro_batch`; refuses what would read outside a window or the vocabulary.
    pub(crate) fn new(micro_batch: &[Sequence], vocab_size: usize) -> Result<Self, DecoderError> {
        for (sequence, window) in micro_batch.iter().enumerate() {
            check(window, vocab_size)
                .map_err(|detail| DecoderError::Sequence { sequence, detail })?;
        }
        let mut order: Vec<usize> = (0..micro_batch.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(micro_batch[index].input.len()));

        let mut batch = Self {
            ids: Vec::new(),
            positions: Vec::new(),
            groups: Vec::new(),
            counted: Vec::new(),
            targets: Vec::new(),
            order,
        };
        for &index in &batch.order {
            let Sequence {
                input,
                positions,
                targets,
            } = &micro_batch[index];
            let (start, len) = (signed(batch.ids.len()), signed(input.len()));
            match batch.groups.last_mut() {
                Some(group) if group.len == len => group.windows += 1,
                _ => batch.groups.push(Group {
                    start,
                    windows: 1,
                    len,
                }),
            }
            batch.ids.extend(input.iter().map(|&id| i64::from(id)));
            batch
                .positions
                .extend((0..input.len()).map(|position| position as f32));
            batch.counted.extend(
                positions
                    .iter()
                    .map(|&position| start + i64::from(position)),
            );
            batch
                .targets
                .extend(targets.iter().map(|&id| i64::from(id)));
        }
        let rows = batch.ids.len().max(MIN_GEMM_ROWS);
        batch.ids.resize(rows, 0);
        batch.positions.resize(rows, 0.0);
        Ok(batch)
    }

    /// Cuts values of all counted rows into one list per window, in the order of `micro_batch`.
    pub(crate) fn by_sequence<T: Clone>(
        &self,
        values: &[T],
        micro_batch: &[Sequence],
    ) -> Vec<Vec<T>> {
        let mut lists = vec![Vec::new(); micro_batch.len()];
        let mut rest = values;
        for &index in &self.order {
            let (own, others) = rest.split_at(micro_batch[index].targets.len());
            lists[index] = own.to_vec();
            rest = others;
        }
        lists
    }
}

fn check(window: &Sequence, vocab_size: usize) -> Result<(), String> {
    let Sequence {
        input,
        positions,
        targets,
    } = window;
    if input.is_empty() {
        return Err("it has no input".to_owned());
    }
    if positions.len() != targets.len() {
        return Err(format!(
            "it has {} targets at {} positions",
            targets.len(),
            positions.len(),
        ));
    }
    if !positions.is_sorted_by(|a, b| a < b) {
        return Err("its positions do not increase".to_owned());
    }
    if let Some(last) = positions
        .last()
        .filter(|&&last| last as usize >= input.len())
    {
        return Err(format!(
            "position {last} is not below its {} inputs",
            input.len(),
        ));
    }
    match input
        .iter()
        .chain(targets)
        .find(|&&id| id as usize >= vocab_size)
    {
        Some(id) => Err(format!(
            "token id {id} is not below the model's {vocab_size} rows"
        )),
        None => Ok(()),
    }
}

/// Sizes as libtorch wants them.
pub(crate) fn signed(size: usize) -> i64 {
    i64::try_from(size).expect("no buffer is longer than i64::MAX")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(len: u32, positions: impl IntoIterator<Item = u32>) -> Sequence {
        let positions: Vec<u32> = positions.into_iter().collect();
        Sequence {
            input: (0..len).collect(),
            targets: vec![7; positions.len()],
            positions,
        }
    }

    #[test]
    fn equal_lengths_lie_side_by_side_and_results_go_back_in_order() {
        let micro_batch = [
            sequence(2, [1]),
            sequence(300, [0, 7]),
            sequence(2, [0, 1]),
            sequence(300, [299]),
        ];
        let batch = Batch::new(&micro_batch, 300).unwrap();
        assert_eq!(
            batch.groups,
            [
                Group {
                    start: 0,
                    windows: 2,
                    len: 300
                },
                Group {
                    start: 600,
                    windows: 2,
                    len: 2
                }
            ]
        );
        assert_eq!(batch.counted, [0, 7, 599, 601, 602, 603]);
        assert_eq!(
            batch.positions[598..604],
            [298.0, 299.0, 0.0, 1.0, 0.0, 1.0]
        );
        let lists = batch.by_sequence(&batch.counted, &micro_batch);
        assert_eq!(lists, [vec![601], vec![0, 7], vec![602, 603], vec![599]]);
    }

    #[test]
    fn rows_are_padded_to_the_smallest_product() {
        let batch = Batch::new(&[sequence(3, 0..3)], 10).unwrap();
        assert_eq!(batch.ids.len(), MIN_GEMM_ROWS);
        assert_eq!(batch.counted, [0, 1, 2]);
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let uneven = Sequence {
            targets: vec![7; 3],
            ..sequence(4, [1, 2])
        };
        for (bad, word) in [
            (sequence(0, []), "no input"),
            (uneven, "3 targets at 2 positions"),
            (sequence(4, [2, 1]), "do not increase"),
            (sequence(4, [2, 2]), "do not increase"),
            (sequence(4, [3, 4]), "position 4 is not below its 4 inputs"),
            (sequence(4, [u32::MAX]), "is not below"),
            (sequence(11, [0]), "token id 10"),
        ] {
            let error = Batch::new(&[sequence(4, 0..4), bad], 10).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert!(error.to_string().contains("sequence 1"), "{error}");
        }
    }
}
