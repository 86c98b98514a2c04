//! The softmax of rows whose scores come a block at a time (Milakov and Gimelshein 2018).

use std::ops::Range;

use crate::dot::{Dot, Factor};
use crate::function::{exp, tanh};
use crate::number::{load, store};
use crate::vector::Vector;

/// The softmax of a row so far.
#[derive(Clone, Copy)]
pub(crate) struct Softmax {
    highest: f32,
    /// Of e^(score - highest).
    pub(crate) sum: f32,
}

impl Softmax {
    pub(crate) const NEW: Self = Self {
        highest: f32::NEG_INFINITY,
        sum: 0.0,
    };

    /// Takes more scores, to be multiplied by `scale`, and writes e^(score - highest) of them; the
    /// factor from the highest score so far to the one now. The range is whole vectors.
    #[inline(always)]
    pub(crate) unsafe fn take<T: Factor, V: Dot<T>>(
        &mut self,
        scores: *const f32,
        range: Range<usize>,
        scale: f32,
        weights: *mut T,
    ) -> f32 {
        // SAFETY: valid for the range, says the caller.
        unsafe {
            let mut highest = V::splat(f32::NEG_INFINITY);
            let mut at = range.start;
            while at < range.end {
                highest = highest.max(V::load(scores.add(at)));
                at += V::LANES;
            }
            let before = self.highest;
            // NaN is in the sum, whatever becomes of it here.
            self.highest = before.max(highest.highest() * scale);
            let is_higher = self.highest > before;
            let factor = if is_higher {
                (before - self.highest).exp()
            } else {
                1.0
            };
            // Where nothing is above minus infinity yet, nothing is to be taken away either.
            let is_any = self.highest > f32::NEG_INFINITY;
            let shift = V::splat(if is_any { -self.highest } else { 0.0 });
            let scale = V::splat(scale);
            let mut sum = V::splat(0.0);
            let mut at = range.start;
            while at < range.end {
                let weight = exp(V::load(scores.add(at)).mul_add(scale, shift));
                sum = sum.add(weight);
                weight.narrow(weights.add(at));
                at += V::LANES;
            }
            self.sum = self.sum * factor + sum.sum();
            factor
        }
    }
}

/// Makes plain scores of products: scaled, capped, and lowered by the `bias` of the same key.
#[inline(always)]
pub(crate) unsafe fn change<V: Vector>(
    scores: *mut f32,
    range: Range<usize>,
    scale: f32,
    softcap: Option<f32>,
    bias: Option<*const f32>,
) {
    let mut at = range.start;
    while at < range.end {
        let count = range.end - at;
        // SAFETY: valid for the range, says the caller.
        unsafe {
            let mut score: V = load(scores.add(at), count, 0.0);
            score = score.mul(V::splat(scale));
            if let Some(cap) = softcap {
                score = tanh(score.div(V::splat(cap))).mul(V::splat(cap));
            }
            if let Some(bias) = bias {
                score = score.add(load(bias.add(at), count, 0.0));
            }
            store(score, scores.add(at), count);
        }
        at += V::LANES;
    }
}

/// Multiplies the sums of a row.
#[inline(always)]
pub(crate) unsafe fn scale<V: Vector>(sums: *mut f32, width: usize, factor: f32) {
    let mut at = 0;
    while at < width {
        // SAFETY: valid for `width` numbers, a multiple of all vectors.
        unsafe {
            let scaled = V::load(sums.add(at)).mul(V::splat(factor));
            scaled.store(sums.add(at));
        }
        at += V::LANES;
    }
}

/// Writes what a row attends to: its sums over the sum of its weights.
#[inline(always)]
pub(crate) unsafe fn divide<T: Factor, V: Vector>(
    sums: *const f32,
    count: usize,
    by: f32,
    out: *mut T,
) {
    let mut at = 0;
    while at < count {
        // SAFETY: sums are whole vectors; `out` is valid for `count` numbers.
        unsafe {
            let value = V::load(sums.add(at)).div(V::splat(by));
            store(value, out.add(at), count - at);
        }
        at += V::LANES;
    }
}
