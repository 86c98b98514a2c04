//! Causal attention within windows.
//!
//! As FlashAttention (Dao et al. 2022): scores exist for a block of queries and keys at a time, and
//! what is attended to is rescaled when a higher score is found. Keys and values are laid out in
//! panels once, and shared by the query heads of their group.

use std::ops::Range;

use crate::dot::{Dot, Factor, Products};
use crate::panels::{PANEL, TILE, multiply};
use crate::rows::{Rows, RowsMut, Shared};
use crate::softmax::{Softmax, change, divide, scale};
use crate::threads::Cpu;

/// Queries that are taken at a time.
const QUERIES: usize = 8 * TILE;
/// Keys that they meet at a time: their scores stay in a core's cache.
const KEYS: usize = 512;
/// Keys that one task lays out.
const LAID_OUT: usize = 4 * PANEL;

/// Numbers of four bytes that a task needs.
pub(crate) fn space(head_dim: usize) -> usize {
    QUERIES * (2 * KEYS + head_dim.next_multiple_of(PANEL))
}

/// Rows of one window, which attend to each other.
pub type Window = Range<usize>;

/// What attention computes: softmax of the scores times the values, each query with the keys up to
/// its own. A score is `scale * query . key`, then capped, then lowered by its distance.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and of values; each serves `heads / kv_heads` query heads side by side.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub head_dim: usize,
    /// Multiplies scores; above zero.
    pub scale: f32,
    /// Bounds scores: `c tanh(score / c)`.
    pub softcap: Option<f32>,
    /// Keys that a query attends to at most, its own among them.
    pub reach: Option<usize>,
    /// `[heads, positions]`: added to the scores with the key at a position of its window.
    pub bias: Option<Rows<'a, f32>>,
}

impl Attention<'_> {
    /// Whether heads of so many numbers can be multiplied.
    pub fn takes<T: Factor>(head_dim: usize) -> bool {
        head_dim > 0 && head_dim.is_multiple_of(T::STEP)
    }

    /// Numbers of `T` that keys and values of a window of `len` rows take when they are laid out.
    pub fn laid_out_len(&self, len: usize) -> usize {
        let keys = len.next_multiple_of(PANEL) * self.head_dim;
        let values = len.next_multiple_of(PANEL) * self.head_dim.next_multiple_of(PANEL);
        self.kv_heads * (keys + values)
    }

    /// Attention of each window. A row of `qkv` has the heads of queries, keys and values side by
    /// side; a row of `out` gets what each query head attends to, `[rows, heads * head_dim]`. Rows
    /// outside of the windows stay as they are. A value that is not finite makes NaN of each query
    /// that attends to its row, and of no other.
    ///
    /// `laid_out` is zeros, or what an earlier call with the same windows and heads has left
    /// there; as long as [`Attention::laid_out_len`] of all windows together.
    ///
    /// # Panics
    /// If shapes do not fit each other, or the level has no products of `T`.
    pub fn apply<T: Factor>(
        self,
        cpu: Cpu<'_>,
        qkv: Rows<'_, T>,
        windows: &[Window],
        laid_out: &mut [T],
        mut out: RowsMut<'_, T>,
    ) {
        self.check::<T>(&qkv, windows, laid_out.len(), &out);
        let mut starts = Vec::with_capacity(windows.len());
        let mut start = 0;
        for window in windows {
            starts.push(start);
            start += self.laid_out_len(window.len());
        }
        let (from, to) = ((qkv.start(), qkv.stride()), (out.start(), out.stride()));
        let laid_out = Shared::of_mut(laid_out);
        let run = |parts: &[(usize, Part)]| {
            cpu.threads.run(parts.len(), &|index| {
                let (window, part) = parts[index].clone();
                cpu.space.with(self.block(&part), |block| {
                    let task = Task {
                        attention: self,
                        qkv: from,
                        laid_out,
                        out: to,
                        start: starts[window],
                        window: windows[window].clone(),
                        part,
                        block,
                    };
                    T::run(cpu.level, task);
                });
            });
        };
        run(&Self::parts(
            windows,
            self.kv_heads,
            LAID_OUT,
            |head, keys| Part::Lay { head, keys },
        ));
        let attend = |head, queries| Part::Attend { head, queries };
        let mut parts = Self::parts(windows, self.heads, QUERIES, attend);
        // The longest first, so that no thread begins one when the others end.
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.end()));
        run(&parts);
    }

    /// Space for scores, weights and sums of a part.
    fn block(&self, part: &Part) -> [usize; 3] {
        match part {
            Part::Lay { .. } => [0; 3],
            Part::Attend { queries, .. } => {
                let rows = queries.len();
                [
                    rows * KEYS,
                    rows * KEYS,
                    rows * self.head_dim.next_multiple_of(PANEL),
                ]
            }
        }
    }

    fn parts(
        windows: &[Window],
        heads: usize,
        size: usize,
        part: impl Fn(usize, Range<usize>) -> Part,
    ) -> Vec<(usize, Part)> {
        let mut parts = Vec::new();
        for (index, window) in windows.iter().enumerate() {
            for head in 0..heads {
                for first in (0..window.len()).step_by(size) {
                    parts.push((index, part(head, first..(first + size).min(window.len()))));
                }
            }
        }
        parts
    }

    fn check<T: Factor>(
        &self,
        qkv: &Rows<'_, T>,
        windows: &[Window],
        laid_out: usize,
        out: &RowsMut<'_, T>,
    ) {
        let Self {
            heads,
            kv_heads,
            head_dim,
            ..
        } = *self;
        assert!(Self::takes::<T>(head_dim), "heads of {head_dim}");
        assert!(
            kv_heads > 0 && heads % kv_heads == 0,
            "{heads} heads on {kv_heads}"
        );
        assert!(self.scale > 0.0, "scores times {}", self.scale);
        assert_eq!(
            qkv.columns(),
            (heads + 2 * kv_heads) * head_dim,
            "queries, keys, values"
        );
        assert_eq!(out.columns(), heads * head_dim, "columns of attention");
        let rows = qkv.count().min(out.count());
        assert!(
            windows
                .iter()
                .all(|window| window.start <= window.end && window.end <= rows),
            "windows within {rows} rows"
        );
        assert!(
            windows.is_sorted_by(|a, b| a.end <= b.start),
            "windows side by side"
        );
        let needed: usize = windows
            .iter()
            .map(|window| self.laid_out_len(window.len()))
            .sum();
        assert!(
            needed <= laid_out,
            "{needed} numbers to lay out, not {laid_out}"
        );
        if let Some(bias) = &self.bias {
            let longest = windows.iter().map(Range::len).max().unwrap_or(0);
            assert!(
                bias.count() == heads && bias.columns() >= longest,
                "shape of the bias"
            );
        }
    }
}

/// What there is to do for a head of a window.
#[derive(Clone, Debug)]
enum Part {
    /// Lay out keys and values.
    Lay { head: usize, keys: Range<usize> },
    /// Compute what queries attend to.
    Attend { head: usize, queries: Range<usize> },
}

impl Part {
    fn end(&self) -> usize {
        match self {
            Self::Lay { keys, .. } => keys.end,
            Self::Attend { queries, .. } => queries.end,
        }
    }
}

struct Task<'a, T> {
    attention: Attention<'a>,
    qkv: (Shared<T>, usize),
    laid_out: Shared<T>,
    out: (Shared<T>, usize),
    window: Window,
    /// Where the window's keys begin in there.
    start: usize,
    part: Part,
    /// Scores and weights `[queries, KEYS]`, sums `[queries, head_dim]` in rows of whole panels.
    block: [*mut f32; 3],
}

impl<T: Factor> Products<T> for Task<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Dot<T>>(self) {
        // SAFETY: heads and rows lie within the matrices, whose shapes were checked; each part
        // writes what no other part does.
        unsafe {
            match self.part.clone() {
                Part::Lay { head, keys } => self.lay(head, keys),
                Part::Attend { head, queries } => self.attend::<V>(head, queries),
            }
        }
    }
}

impl<T: Factor> Task<'_, T> {
    /// A head's numbers in a row of the window.
    #[inline(always)]
    unsafe fn numbers(&self, head: usize, row: usize) -> *const T {
        let column = head * self.attention.head_dim;
        // SAFETY: within the matrix, says the caller.
        unsafe {
            self.qkv
                .0
                .at((self.window.start + row) * self.qkv.1 + column)
        }
    }

    /// Where the keys and the values of a head are laid out.
    #[inline(always)]
    unsafe fn place(&self, head: usize) -> (*mut T, *mut T) {
        let Attention { head_dim, .. } = self.attention;
        let len = self.window.len().next_multiple_of(PANEL);
        let (keys, values) = (len * head_dim, len * head_dim.next_multiple_of(PANEL));
        // SAFETY: within the space, which was checked.
        unsafe {
            let start = self.laid_out.at(self.start + head * (keys + values));
            (start, start.add(keys))
        }
    }

    /// Keys are the rows of panels; of values the columns are.
    ///
    /// A row that a query does not see is multiplied by zero, which makes NaN of what is not
    /// finite. So such values become zero, and their key NaN: scores are masked.
    #[inline(always)]
    unsafe fn lay(&self, head: usize, rows: Range<usize>) {
        let Attention {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.attention;
        let len = self.window.len().next_multiple_of(PANEL);
        // SAFETY: within the matrix and the space, by their shapes.
        unsafe {
            let (keys, values) = self.place(head);
            for row in rows.clone() {
                let key = self.numbers(heads + head, row);
                let panel = keys.add(row / PANEL * PANEL * head_dim + row % PANEL * T::STEP);
                let mut at = 0;
                while at < head_dim {
                    let step = panel.add(at * PANEL);
                    std::ptr::copy_nonoverlapping(key.add(at), step, T::STEP);
                    at += T::STEP;
                }
                let value = self.numbers(heads + kv_heads + head, row);
                if !(0..head_dim).all(|at| (*value.add(at)).wide().is_finite()) {
                    *panel = T::of(f32::NAN);
                }
            }
            for first in rows.clone().step_by(T::STEP) {
                let step = values.add(first * PANEL);
                for part in 0..T::STEP.min(rows.end - first) {
                    let value = self.numbers(heads + kv_heads + head, first + part);
                    for at in 0..head_dim {
                        let panel = at / PANEL * PANEL * len + at % PANEL * T::STEP;
                        let number = *value.add(at);
                        let is_finite = number.wide().is_finite();
                        *step.add(panel + part) = if is_finite { number } else { T::default() };
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn attend<V: Dot<T>>(&self, head: usize, queries: Range<usize>) {
        let Attention {
            heads,
            kv_heads,
            head_dim,
            reach,
            ..
        } = self.attention;
        let rows = queries.len();
        let width = head_dim.next_multiple_of(PANEL);
        let len = self.window.len().next_multiple_of(PANEL);
        let [scores, weights, sums] = self.block;
        let weights: *mut T = weights.cast();
        let mut state = [Softmax::NEW; QUERIES];

        let farthest = reach.map_or(0, |reach| (queries.start + 1).saturating_sub(reach));
        let mut first = farthest / PANEL * PANEL;
        let mut is_first = true;
        // SAFETY: within the matrices and the space, by their shapes.
        unsafe {
            let (keys, values) = self.place(head / (heads / kv_heads));
            let query = (self.numbers(head, queries.start), self.qkv.1);
            while first < queries.end {
                let count = KEYS.min(queries.end - first);
                for panel in 0..count.div_ceil(PANEL) {
                    // Queries before the panel's first key do not attend to it.
                    let skipped = (first + panel * PANEL).saturating_sub(queries.start);
                    let skipped = skipped / TILE * TILE;
                    let query = (query.0.add(skipped * query.1), query.1);
                    let panel_keys = keys.add((first + panel * PANEL) * head_dim);
                    let out = (scores.add(skipped * KEYS + panel * PANEL), KEYS);
                    multiply::<V, T>(query, rows - skipped, head_dim, panel_keys, out, false);
                }
                let padded = count.next_multiple_of(T::STEP);
                for (row, softmax) in state.iter_mut().enumerate().take(rows) {
                    let at = queries.start + row;
                    let from = reach.map_or(0, |reach| (at + 1).saturating_sub(reach));
                    let seen =
                        from.max(first) - first..(at + 1).min(first + count).max(first) - first;
                    let place = (scores.add(row * KEYS), weights.add(row * KEYS));
                    let factor = self.weigh::<V>(softmax, place, (head, first), seen, padded);
                    if !is_first && factor < 1.0 {
                        scale::<V>(sums.add(row * width), width, factor);
                    }
                }
                let weighted = (weights.cast_const(), KEYS);
                for panel in 0..width / PANEL {
                    let values = values.add(panel * PANEL * len + first * PANEL);
                    let out = (sums.add(panel * PANEL), width);
                    multiply::<V, T>(weighted, rows, padded, values, out, !is_first);
                }
                first += count;
                is_first = false;
            }
            for (row, softmax) in state.iter().enumerate().take(rows) {
                let at = (self.window.start + queries.start + row) * self.out.1;
                let out = self.out.0.at(at + head * head_dim);
                divide::<T, V>(sums.add(row * width), head_dim, softmax.sum, out);
            }
        }
    }

    /// Makes weights of the scores of one query with the keys `seen` of a block, zero for the
    /// others; what the sums so far have to be multiplied by.
    #[inline(always)]
    unsafe fn weigh<V: Dot<T>>(
        &self,
        state: &mut Softmax,
        (scores, weights): (*mut f32, *mut T),
        (head, first): (usize, usize),
        seen: Range<usize>,
        padded: usize,
    ) -> f32 {
        // SAFETY: rows of a block have room for `KEYS`, a multiple of all vectors; the bias is as
        // long as the window.
        unsafe {
            if seen.is_empty() {
                weights.write_bytes(0, padded);
                return 1.0;
            }
            // Whole vectors, whose other numbers are minus infinity and weigh nothing.
            let from = seen.start / V::LANES * V::LANES;
            let to = seen.end.next_multiple_of(V::LANES);
            let Attention {
                mut scale,
                softcap,
                bias,
                ..
            } = self.attention;
            if softcap.is_some() || bias.is_some() {
                let bias = bias.map(|bias| bias.row(head)[first..].as_ptr());
                change::<V>(scores, seen.clone(), scale, softcap, bias);
                scale = 1.0;
            }
            for other in (from..seen.start).chain(seen.end..to) {
                *scores.add(other) = f32::NEG_INFINITY;
            }
            weights.write_bytes(0, from);
            weights.add(to).write_bytes(0, padded.saturating_sub(to));
            state.take::<T, V>(scores, from..to, scale, weights)
        }
    }
}
