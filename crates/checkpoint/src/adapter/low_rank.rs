//! A product of two matrices that is added to a weight, read a few rows at a time.

use std::ops::Range;

use crate::names::Rows;
use crate::tensor::{StoredTensor, Tensors};
use crate::weight::pieces;

/// Where the two matrices lie.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Factors {
    /// `[rank, in]`.
    pub(super) down: StoredTensor,
    /// `[out, rank]`.
    pub(super) up: StoredTensor,
    /// Rows of the weight are columns of `down`, and not rows of `up`.
    pub(super) by_columns: bool,
    /// Which of these, in the order of the weight's.
    pub(super) rows: Rows,
    pub(super) rank: usize,
    pub(super) scale: f64,
}

/// A product of two matrices that is added to a weight: `scale * left @ right`.
#[derive(Clone, Copy, Debug)]
pub struct LowRank<'a> {
    pub(crate) factors: &'a Factors,
    pub(crate) files: &'a Tensors,
}

impl LowRank<'_> {
    /// The rank.
    pub fn rank(&self) -> usize {
        self.factors.rank
    }

    /// The factor.
    pub fn scale(&self) -> f64 {
        self.factors.scale
    }

    /// The rows of the left matrix that belong to these rows of the weight, `[rows, rank]`, row by
    /// row.
    pub fn left(&self, rows: Range<usize>) -> Vec<f32> {
        let Factors {
            down,
            up,
            by_columns,
            rank,
            ..
        } = self.factors;
        let wanted = pieces(self.factors.rows.runs(), rows);
        if !by_columns {
            let mut left = Vec::new();
            for run in wanted {
                left.extend(self.numbers(up, run.start * rank..run.end * rank));
            }
            return left;
        }
        let width = down.shape[1];
        let count: usize = wanted.iter().map(Range::len).sum();
        let mut left = vec![0.0; count * rank];
        for of_rank in 0..*rank {
            let mut row = 0;
            for run in &wanted {
                let start = of_rank * width;
                for number in self.numbers(down, start + run.start..start + run.end) {
                    left[row * rank + of_rank] = number;
                    row += 1;
                }
            }
        }
        left
    }

    /// The right matrix, `[rank, columns of the weight]`, row by row.
    pub fn right(&self) -> Vec<f32> {
        let Factors {
            down,
            up,
            by_columns,
            rank,
            ..
        } = self.factors;
        if !by_columns {
            return self.numbers(down, 0..down.shape[0] * down.shape[1]);
        }
        let columns = up.shape[0];
        let stored = self.numbers(up, 0..columns * rank);
        let row = |of_rank: usize| (0..columns).map(move |column| (column, of_rank));
        let places = (0..*rank).flat_map(row);
        places
            .map(|(column, of_rank)| stored[column * rank + of_rank])
            .collect()
    }

    /// These elements of a stored tensor.
    fn numbers(&self, tensor: &StoredTensor, elements: Range<usize>) -> Vec<f32> {
        let size = tensor.format.spec().block_bytes;
        let bytes = &self.files.bytes(tensor)[elements.start * size..elements.end * size];
        let dtype = tensor.format.plain();
        dtype.map_or_else(Vec::new, |dtype| dtype.to_float32(bytes))
    }
}
