//! A weight of the decoder, made of stored tensors a few rows at a time.

use std::borrow::Cow;
use std::ops::Range;

use crate::adapter::{Factors, LowRank};
use crate::gguf::dequantise;
use crate::names::Layout;
use crate::tensor::{Format, StoredTensor, Tensors, WeightDtype};

/// Where a weight lies: in one tensor, or in several below each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    /// As the decoder wants it.
    pub(crate) shape: Vec<usize>,
    /// Stored tensors of the same format, with as many rows of the weight each.
    pub(crate) tensors: Vec<StoredTensor>,
    /// How each of them lies there.
    pub(crate) layout: Layout,
    /// What an adapter adds.
    pub(crate) low_rank: Option<Factors>,
}

impl Bound {
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub(crate) fn format(&self) -> Format {
        self.tensors[0].format
    }
}

/// One weight, as the decoder wants it: `[out, in]` for matrices, heads with the numbers that are
/// rotated against each other half a head apart.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    pub(crate) bound: &'a Bound,
    pub(crate) files: &'a Tensors,
}

impl<'a> Weight<'a> {
    /// Element type of what [`Weight::rows`] gives: the stored one, float32 where it is quantised.
    pub fn dtype(&self) -> WeightDtype {
        match self.bound.format().plain() {
            Some(dtype) if !self.bound.layout.minus_one => dtype,
            _ => WeightDtype::F32,
        }
    }

    /// Its sizes.
    pub fn shape(&self) -> &'a [usize] {
        &self.bound.shape
    }

    /// The elements of these rows, row by row, little endian; a row of a vector is one element.
    /// Borrowed from the file where it stores them so.
    ///
    /// # Panics
    /// When the rows are not below the first of the sizes.
    pub fn rows(&self, rows: Range<usize>) -> Cow<'a, [u8]> {
        let Bound {
            tensors, layout, ..
        } = self.bound;
        let each = self.bound.shape[0] / tensors.len();
        let mut parts = tensors.iter().enumerate().filter_map(|(index, tensor)| {
            let start = rows.start.max(index * each);
            let end = rows.end.min((index + 1) * each);
            (start < end).then(|| (tensor, start - index * each..end - index * each))
        });
        let (first, part) = parts.next().unwrap_or((&tensors[0], 0..0));
        let mut bytes = self.of_one(first, layout, part);
        for (tensor, part) in parts {
            let more = self.of_one(tensor, layout, part);
            bytes.to_mut().extend_from_slice(&more);
        }
        bytes
    }

    /// What an adapter adds to it, which [`Weight::rows`] do not have.
    pub fn low_rank(&self) -> Option<LowRank<'a>> {
        let factors = self.bound.low_rank.as_ref()?;
        Some(LowRank {
            factors,
            files: self.files,
        })
    }

    /// All elements, row by row, little endian.
    pub fn bytes(&self) -> Cow<'a, [u8]> {
        self.rows(0..self.bound.shape[0])
    }

    fn of_one(&self, tensor: &StoredTensor, layout: &Layout, rows: Range<usize>) -> Cow<'a, [u8]> {
        let stored = self.files.bytes(tensor);
        let pieces = pieces(layout.rows.runs(), rows);
        let bytes = if layout.transposed {
            Cow::Owned(columns(stored, tensor, &pieces))
        } else {
            let stride = stored.len() / layout.stored_rows;
            let piece = |rows: &Range<usize>| &stored[rows.start * stride..rows.end * stride];
            match pieces.as_slice() {
                [one] => Cow::Borrowed(piece(one)),
                several => Cow::Owned(several.iter().map(piece).collect::<Vec<_>>().concat()),
            }
        };
        let bytes = match tensor.format {
            Format::Plain(_) => bytes,
            blocks => {
                let mut values = Vec::new();
                dequantise(blocks, &bytes, &mut values);
                Cow::Owned(values)
            }
        };
        if layout.minus_one {
            Cow::Owned(plus_one(&bytes, tensor.format.plain()))
        } else {
            bytes
        }
    }
}

/// The stored rows behind the rows `wanted` of a weight.
pub(crate) fn pieces(
    stored: impl IntoIterator<Item = Range<usize>>,
    wanted: Range<usize>,
) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut position = 0;
    for range in stored {
        let start = wanted.start.max(position);
        let end = wanted.end.min(position + range.len());
        if start < end {
            pieces.push(range.start + start - position..range.start + end - position);
        }
        position += range.len();
    }
    pieces
}

/// Columns of a stored matrix, as rows.
fn columns(stored: &[u8], tensor: &StoredTensor, columns: &[Range<usize>]) -> Vec<u8> {
    let size = tensor.format.spec().block_bytes;
    let (rows, width) = (tensor.shape[0], tensor.shape[1]);
    let count: usize = columns.iter().map(Range::len).sum();
    let mut bytes = vec![0; count * rows * size];
    // Along the stored rows, so that each line of the file is touched once.
    for (row, line) in stored.chunks_exact(width * size).enumerate() {
        for (target, column) in columns.iter().cloned().flatten().enumerate() {
            let to = (target * rows + row) * size;
            bytes[to..to + size].copy_from_slice(&line[column * size..][..size]);
        }
    }
    bytes
}

/// float32 numbers, each 1 more than stored.
fn plus_one(bytes: &[u8], stored: Option<WeightDtype>) -> Vec<u8> {
    let wide = stored.unwrap_or(WeightDtype::F32).to_float32(bytes);
    let more = wide.into_iter().map(|value| value + 1.0);
    more.flat_map(f32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_the_order_of_the_weight() {
        let stored = [4..6, 0..1, 8..12];
        let pieces = |wanted| pieces(stored.clone(), wanted);
        assert_eq!(pieces(0..7), stored);
        assert_eq!(pieces(1..4), [5..6, 0..1, 8..9]);
        assert_eq!(pieces(2..7), [0..1, 8..12]);
        assert!(pieces(3..3).is_empty());
    }
}
