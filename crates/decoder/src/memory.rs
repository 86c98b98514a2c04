//! How much memory weights and activations take, before they take it.

use assay_api::Dtype;
use assay_checkpoint::{
    Activation, Architecture, BlockForm, Checkpoint, NormKind, Positions, Scales, Slot,
};
use assay_kernels::PANEL;

use crate::mask::QUERY_ROWS;
use crate::model::{HEAD_ROWS, MIN_GEMM_ROWS};
use crate::weights::CHUNK;

/// Bytes that loading a checkpoint in `dtype` takes at most: the weights, norms in float32, and
/// some rows on their way, as they are stored, in float32, and with what an adapter adds.
///
/// The file that the weights are read from is mapped and not counted.
pub fn weight_bytes(checkpoint: &Checkpoint, dtype: Dtype) -> u64 {
    let slots = checkpoint.architecture().slots();
    let bytes = |(_, shape): &(Slot, Vec<usize>)| {
        // Kernels of our own want the rows of a matrix in whole panels.
        let panels = if shape.len() == 2 { PANEL } else { 1 };
        let rows = shape[0].next_multiple_of(panels) as u64;
        let elements = rows * shape[1..].iter().map(|&size| size as u64).product::<u64>();
        elements
            * if shape.len() == 1 {
                Dtype::Float32
            } else {
                dtype
            }
            .bytes()
    };
    let right = |(slot, shape): &(Slot, Vec<usize>)| {
        let low_rank = checkpoint.weight(*slot).ok()?.low_rank()?;
        Some(2 * (low_rank.rank() * shape[1]) as u64 * Dtype::Float32.bytes())
    };
    let right = slots.iter().filter_map(right).max().unwrap_or(0);
    slots.iter().map(bytes).sum::<u64>() + right + 6 * CHUNK as u64
}

/// What decides how much memory the activations take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activations<'a> {
    pub(crate) architecture: &'a Architecture,
    /// Bytes of a number of the dtype.
    pub(crate) number: u64,
    /// Whether fused attention keeps a score for every pair of a window.
    pub(crate) scores: bool,
    /// Whether kernels of our own do what lies between the products.
    pub(crate) processor: bool,
    /// Whether they multiply as well.
    pub(crate) own: bool,
}

/// Bytes of a float32.
const FLOAT: u64 = 4;
/// Rows of logits that are float32 at a time, and how often they exist: see `loss::nll`.
const LOSS_ROWS: u64 = 16;
const LOSS_COPIES: u64 = 3;
/// Buffers of a thread, and of oneDNN for one product.
const WORKSPACE: u64 = 1 << 20;

impl Activations<'_> {
    /// Bytes that the activations of one micro-batch take at most, for windows of these lengths.
    pub(crate) fn peak(self, windows: impl Iterator<Item = usize>) -> u64 {
        let mut lengths: Vec<u64> = windows.map(|len| len as u64).collect();
        lengths.sort_unstable();
        let rows = lengths.iter().sum::<u64>().max(MIN_GEMM_ROWS as u64);
        let groups = lengths.chunk_by(|a, b| a == b);
        let groups = groups.map(|group| self.attention(group.len() as u64, group[0]));
        // One group after the other, but for kernels of our own, which keep what they lay out.
        let attention = if self.own {
            groups.fold(0, u64::saturating_add)
        } else {
            groups.max().unwrap_or(0)
        };

        let number = self.number;
        let Architecture {
            hidden_size,
            embedding_size,
            intermediate_size,
            heads,
            kv_heads,
            head_dim,
            vocab_size,
            ..
        } = *self.architecture;
        let of = |elements: usize| elements as u64 * number;
        let residual = of(hidden_size);
        // Ids, positions, counted rows and targets, here and on the device.
        let indices = 2 * (8 + 4 + 8 + 8);
        let ropes = self.architecture.ropes().len();
        // Sines and cosines, for kernels of our own once and else twice.
        let rotation = of(if self.processor { 1 } else { 2 } * head_dim * ropes);
        let qkv = of((heads + 2 * kv_heads) * head_dim);
        let attended = of(heads * head_dim);
        // Where gate and up meet while they are made, only what comes of them is written.
        let meet = self.own && self.architecture.activation != Activation::Gelu;
        let width = if self.architecture.gated && !meet {
            2
        } else {
            1
        };
        let up = of(width * intermediate_size);
        let rotated = if self.processor {
            0
        } else {
            of((heads + kv_heads) * head_dim)
        };
        // A norm's float32 input and output, unless they are the input and output themselves.
        let by_kernel = self.processor && self.architecture.norm != NormKind::Layer;
        let exact = if by_kernel {
            0
        } else if number < FLOAT {
            2 * hidden_size as u64 * FLOAT
        } else {
            0
        };
        // The same of the norm of the queries, and its output.
        let normed_queries = match self.architecture.qk_norm {
            None => 0,
            Some(_) if by_kernel => 0,
            Some(_) => 3 * (heads * head_dim) as u64 * FLOAT,
        };
        // oneDNN wants the strided input of the last product contiguous.
        let gated = if self.own { 0 } else { of(intermediate_size) };
        // The output of a branch that is not added as it is, its norm and a multiple of it; the
        // norm that attention and MLP read side by side.
        let branch = match self.architecture.form {
            BlockForm::PreNorm => 0,
            BlockForm::ParallelShared => residual,
            _ => 3 * residual,
        } + if self.architecture.scales == Scales::NONE {
            0
        } else {
            2 * residual
        };

        let kept =
            rows.saturating_mul(indices + rotation + residual + qkv + attended + up + branch);
        // Beside the normed input of attention, which lives to the block's end: its own
        // temporaries, or the normed input of the MLP and what is there before or after it.
        let block = rows.saturating_mul(
            rotated
                .max(residual + exact.max(gated))
                .max(self.mixture())
                .max(normed_queries),
        );
        let block = if self.own {
            block.saturating_add(attention)
        } else {
            block.max(attention)
        };
        let block = block.saturating_add(rows.saturating_mul(residual));
        // The rows that count, normed and projected: all of them where logits are made a few at a
        // time.
        let selected = of(2 * hidden_size + embedding_size);
        let logits = if self.own {
            rows.saturating_mul(selected + 2 * 8)
        } else {
            let copies = if self.processor {
                0
            } else {
                LOSS_ROWS * LOSS_COPIES
            };
            HEAD_ROWS as u64 * (of(vocab_size) + selected) + copies * vocab_size as u64 * FLOAT
        };
        let head = rows
            .saturating_mul(indices + residual)
            .saturating_add(logits);
        let peak = kept.saturating_add(block).max(head);
        // glibc's allocator keeps freed memory that is too small for what is asked next: measured
        // on CPUs, a quarter to a half of what is in use.
        peak.saturating_add(peak / 2).saturating_add(WORKSPACE)
    }

    /// Bytes a row of a mixture of experts: the scores of all, the outputs of those that compute
    /// it, their sum and what is added to it, and what an expert that gets every row holds.
    fn mixture(self) -> u64 {
        let Some(experts) = self.architecture.experts else {
            return 0;
        };
        let hidden = self.architecture.hidden_size;
        let width = (experts.per_token + 4) * hidden + 3 * experts.intermediate_size;
        let choices = experts.per_token as u64 * 64;
        experts.count as u64 * (2 * FLOAT + self.number) + choices + width as u64 * self.number
    }

    /// Bytes that attention over `windows` windows of `len` rows takes beside its inputs.
    fn attention(self, windows: u64, len: u64) -> u64 {
        let Architecture {
            heads, head_dim, ..
        } = *self.architecture;
        let (heads, head_dim) = (heads as u64, head_dim as u64);
        let rows = windows.saturating_mul(len);
        if self.own {
            return self.laid_out(windows, len);
        }
        let output = rows.saturating_mul(heads * (head_dim * self.number + FLOAT));
        let tiled = output.saturating_add(self.tiles(len));
        if !self.scores {
            return tiled;
        }
        // Scaled queries and keys, keys and values repeated for every head, the output in the
        // order of rows; scores, masked scores and their softmax.
        let repeated = rows.saturating_mul(5 * heads * head_dim * self.number);
        let scores = rows.saturating_mul(len).saturating_mul(3 * heads * FLOAT);
        tiled.saturating_add(repeated).saturating_add(scores)
    }

    /// Bytes that keys and values of windows take for kernels of our own.
    fn laid_out(self, windows: u64, len: u64) -> u64 {
        let Architecture {
            kv_heads, head_dim, ..
        } = *self.architecture;
        let padded = |size: u64| size.div_ceil(PANEL as u64).saturating_mul(PANEL as u64);
        let (kv_heads, head_dim) = (kv_heads as u64, head_dim as u64);
        let width = kv_heads * (head_dim + padded(head_dim)) * self.number;
        windows.saturating_mul(padded(len)).saturating_mul(width)
    }

    /// Bytes of masks, and of the scores of a tile where no fused kernel computes them.
    fn tiles(self, len: u64) -> u64 {
        let architecture = self.architecture;
        let rows = QUERY_ROWS.unsigned_abs();
        let changed =
            architecture.softcaps.attention.is_some() || architecture.positions == Positions::Alibi;
        let windows = architecture.blocks.iter().filter_map(|block| block.window);
        let longest = windows
            .map(|window| window as u64)
            .filter(|window| *window < len)
            .max();
        let own = changed.then_some(rows);
        let Some(widest) = longest.max(own) else {
            return 0;
        };
        // One for each window, made of integers.
        let masks = 2 * rows * (widest + rows) * (self.number + 20);
        let scores = if changed {
            let heads = architecture.heads as u64;
            rows.saturating_mul(len)
                .saturating_mul(heads * (2 * self.number + 2 * FLOAT))
        } else {
            0
        };
        masks.saturating_add(scores)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The architecture of a fixture, as wide as the demo checkpoint.
    fn architecture(case: &str) -> Architecture {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
        let path = fs::canonicalize(fixtures.join(case)).unwrap();
        Architecture {
            hidden_size: 576,
            embedding_size: 576,
            intermediate_size: 1536,
            heads: 9,
            kv_heads: 3,
            head_dim: 64,
            vocab_size: 49_152,
            ..Checkpoint::open(&path).unwrap().architecture().clone()
        }
    }

    fn of(number: u64, scores: bool, case: &str, windows: &[usize]) -> u64 {
        let architecture = &architecture(case);
        let activations = Activations {
            architecture,
            number,
            scores,
            processor: !scores,
            own: false,
        };
        activations.peak(windows.iter().copied())
    }

    fn plain(windows: &[usize]) -> u64 {
        of(4, false, "llama_gqa", windows)
    }

    #[test]
    fn it_grows_with_rows_and_not_with_their_order() {
        assert_eq!(plain(&[1024, 7, 300]), plain(&[7, 300, 1024]));
        assert!(plain(&[2048, 2048]) > plain(&[2048]));
        assert_eq!(plain(&[1]), plain(&[MIN_GEMM_ROWS]));
        assert!(of(2, false, "llama_gqa", &[4096]) < plain(&[4096]));
    }

    #[test]
    fn the_logits_are_the_least() {
        let logits = HEAD_ROWS as u64 * 49_152 * 4;
        assert!(plain(&[1]) > logits);
        assert!(plain(&[]) > logits);
    }

    #[test]
    fn scores_grow_with_the_square_of_the_longest_windows() {
        let scores = |windows: &[usize]| of(4, true, "llama_gqa", windows);
        let more = scores(&[4096]) - plain(&[4096]);
        assert!(more > 9 * 4096 * 4096 * 4 * 3, "{more}");
        // Windows of equal length are taken together, others one length after the other.
        assert!(scores(&[2048, 2048]) > scores(&[2048, 2047]));
    }

    #[test]
    fn capped_scores_are_those_of_a_tile() {
        let capped = of(4, false, "gemma2", &[8192]);
        let tile = 9 * QUERY_ROWS.unsigned_abs() * 8192 * 4;
        assert!(capped > plain(&[8192]) + tile, "{capped}");
        assert!(capped < plain(&[8192]) + 9 * 8192 * 8192 * 4, "{capped}");
    }

    #[test]
    fn what_no_machine_has_does_not_overflow() {
        let windows = [u32::MAX as usize; 3];
        assert_eq!(of(4, true, "llama_gqa", &windows), u64::MAX);
    }
}
