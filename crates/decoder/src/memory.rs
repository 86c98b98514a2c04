//! How much memory weights and activations take, before they take it.

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;

use crate::model::{HEAD_ROWS, MIN_GEMM_ROWS};

/// Bytes that loading a checkpoint in `dtype` takes at most: the weights, and two copies of the
/// largest of them in float32 on their way.
///
/// The file that the weights are read from is mapped and not counted.
pub fn weight_bytes(checkpoint: &Checkpoint, dtype: Dtype) -> u64 {
    let slots = checkpoint.architecture().slots();
    let sizes = slots
        .iter()
        .map(|(_, shape)| shape.iter().map(|&size| size as u64).product::<u64>());
    let largest = sizes.clone().max().unwrap_or(0);
    sizes.sum::<u64>() * dtype.bytes() + 2 * largest * Dtype::Float32.bytes()
}

/// Sizes that decide how much memory the activations take. All but `number` in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of a number of the dtype.
    pub(crate) number: u64,
    pub(crate) hidden: u64,
    pub(crate) intermediate: u64,
    pub(crate) heads: u64,
    pub(crate) kv_heads: u64,
    pub(crate) head_dim: u64,
    pub(crate) vocab_size: u64,
    /// Whether attention keeps a score for every pair of a window.
    pub(crate) scores: bool,
}

/// Bytes of a float32.
const FLOAT: u64 = 4;
/// Rows of logits that are float32 at a time, and how often they exist: see `loss::nll`.
const LOSS_ROWS: u64 = 16;
const LOSS_COPIES: u64 = 3;
/// Buffers of a thread, and of oneDNN for one product.
const WORKSPACE: u64 = 1 << 20;

impl Shape {
    /// Bytes that the activations of one micro-batch take at most, for windows of these lengths.
    pub(crate) fn activations(self, windows: impl Iterator<Item = usize>) -> u64 {
        let mut lengths: Vec<u64> = windows.map(|len| len as u64).collect();
        lengths.sort_unstable();
        let rows = lengths.iter().sum::<u64>().max(MIN_GEMM_ROWS as u64);
        let attention = lengths
            .chunk_by(|a, b| a == b)
            .map(|group| self.attention(group.len() as u64, group[0]))
            .max()
            .unwrap_or(0);

        let residual = self.hidden * self.number;
        // Ids, positions, counted rows and targets, here and on the device.
        let indices = 2 * (8 + 4 + 8 + 8);
        let rotation = 2 * self.head_dim * self.number;
        let qkv = (self.heads + 2 * self.kv_heads) * self.head_dim * self.number;
        let attended = self.heads * self.head_dim * self.number;
        let gate_up = 2 * self.intermediate * self.number;
        let rotated = (self.heads + self.kv_heads) * self.head_dim * self.number;
        // A norm's float32 input and output, unless they are the input and output themselves.
        let exact = if self.number < FLOAT {
            2 * self.hidden * FLOAT
        } else {
            0
        };
        // oneDNN wants the strided input of the last product contiguous.
        let gated = self.intermediate * self.number;

        let kept = rows.saturating_mul(indices + rotation + residual + qkv + attended + gate_up);
        // Beside the normed input of attention, which lives to the block's end: its own
        // temporaries, or the normed input of the MLP and what is there before or after it.
        let block = rows
            .saturating_mul(rotated.max(residual + exact.max(gated)))
            .max(attention)
            .saturating_add(rows.saturating_mul(residual));
        let logits = HEAD_ROWS as u64 * self.vocab_size * self.number
            + LOSS_ROWS * LOSS_COPIES * self.vocab_size * FLOAT;
        let head = rows
            .saturating_mul(indices + residual)
            .saturating_add(logits);
        let peak = kept.saturating_add(block).max(head);
        // glibc's allocator keeps freed memory that is too small for what is asked next: measured
        // on CPUs, a quarter to a half of what is in use.
        peak.saturating_add(peak / 2).saturating_add(WORKSPACE)
    }

    /// Bytes that attention over `windows` windows of `len` rows takes beside its inputs.
    fn attention(self, windows: u64, len: u64) -> u64 {
        let rows = windows.saturating_mul(len);
        let output = rows.saturating_mul(self.heads * (self.head_dim * self.number + FLOAT));
        if !self.scores {
            return output;
        }
        // Scaled queries and keys, keys and values repeated for every head, the output in the
        // order of rows; scores, masked scores and their softmax.
        let repeated = rows.saturating_mul(5 * self.heads * self.head_dim * self.number);
        let scores = rows
            .saturating_mul(len)
            .saturating_mul(3 * self.heads * FLOAT);
        output.saturating_add(repeated).saturating_add(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        number: 4,
        hidden: 576,
        intermediate: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        vocab_size: 49_152,
        scores: false,
    };

    fn of(shape: Shape, windows: &[usize]) -> u64 {
        shape.activations(windows.iter().copied())
    }

    #[test]
    fn it_grows_with_rows_and_not_with_their_order() {
        assert_eq!(of(SHAPE, &[1024, 7, 300]), of(SHAPE, &[7, 300, 1024]));
        assert!(of(SHAPE, &[2048, 2048]) > of(SHAPE, &[2048]));
        assert_eq!(of(SHAPE, &[1]), of(SHAPE, &[MIN_GEMM_ROWS]));
        let narrow = Shape { number: 2, ..SHAPE };
        assert!(of(narrow, &[4096]) < of(SHAPE, &[4096]));
    }

    #[test]
    fn the_logits_are_the_least() {
        let logits = HEAD_ROWS as u64 * 49_152 * 4;
        assert!(of(SHAPE, &[1]) > logits);
        assert!(of(SHAPE, &[]) > logits);
    }

    #[test]
    fn scores_grow_with_the_square_of_the_longest_windows() {
        let scores = Shape {
            scores: true,
            ..SHAPE
        };
        let more = of(scores, &[4096]) - of(SHAPE, &[4096]);
        assert!(more > 9 * 4096 * 4096 * 4 * 3, "{more}");
        // Windows of equal length are taken together, others one length after the other.
        assert!(of(scores, &[2048, 2048]) > of(scores, &[2048, 2047]));
    }

    #[test]
    fn what_no_machine_has_does_not_overflow() {
        let scores = Shape {
            scores: true,
            ..SHAPE
        };
        assert_eq!(of(scores, &[u32::MAX as usize; 3]), u64::MAX);
    }
}
