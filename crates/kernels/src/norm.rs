//! RMS norm.

use std::ops::Range;

use crate::level::Kernel;
use crate::number::{Number, load, store};
use crate::rows::{Rows, RowsMut, Shared};
use crate::threads::{Cpu, spread};
use crate::vector::Vector;

/// The parameters of an RMS norm (Zhang and Sennrich 2019) of groups of numbers that lie side by
/// side in a row: `x / sqrt(mean(x^2) + eps) * weight`, computed in float32.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'a, W> {
    /// `[size]`: one group.
    pub weight: &'a [W],
    /// Added to the mean.
    pub eps: f32,
    /// Whether the normed numbers are rounded to their dtype before they meet the weight.
    pub rounds_first: bool,
}

impl<W: Number> RmsNorm<'_, W> {
    /// Norms each row of `x` into the same row of `out`. Rows are whole groups.
    ///
    /// # Panics
    /// If shapes differ, or the processor does not have the level.
    pub fn apply<T: Number>(self, cpu: Cpu<'_>, x: Rows<'_, T>, mut out: RowsMut<'_, T>) {
        assert_eq!(
            (x.count(), x.columns()),
            (out.count(), out.columns()),
            "shapes of a norm"
        );
        let (from, to) = ((x.start(), x.stride()), (out.start(), out.stride()));
        self.run(cpu, from, to, x.count(), x.columns());
    }

    /// Norms each row in place.
    ///
    /// # Panics
    /// As [`RmsNorm::apply`].
    pub fn apply_in_place<T: Number>(self, cpu: Cpu<'_>, mut x: RowsMut<'_, T>) {
        let place = (x.start(), x.stride());
        self.run(cpu, place, place, x.count(), x.columns());
    }

    fn run<T: Number>(
        self,
        cpu: Cpu<'_>,
        from: (Shared<T>, usize),
        to: (Shared<T>, usize),
        count: usize,
        columns: usize,
    ) {
        let size = self.weight.len();
        assert!(
            size > 0 && columns.is_multiple_of(size),
            "{columns} columns in groups of {size}"
        );
        let norm = self;
        spread(cpu.threads, count, 1, usize::MAX, |rows| {
            cpu.level.run(Task {
                norm,
                from,
                to,
                rows,
                groups: columns / size,
            });
        });
    }
}

struct Task<'a, T, W> {
    norm: RmsNorm<'a, W>,
    from: (Shared<T>, usize),
    to: (Shared<T>, usize),
    rows: Range<usize>,
    groups: usize,
}

impl<T: Number, W: Number> Kernel for Task<'_, T, W> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let size = self.norm.weight.len();
        for row in self.rows {
            for group in 0..self.groups {
                // SAFETY: rows and groups lie within the matrices, whose shape was checked; each
                // row is one task's.
                unsafe {
                    let from = self.from.0.at(row * self.from.1 + group * size);
                    let to = self.to.0.at(row * self.to.1 + group * size);
                    one::<T, W, V>(self.norm, from, to);
                }
            }
        }
    }
}

/// Norms one group. It is read whole before it is written.
#[inline(always)]
unsafe fn one<T: Number, W: Number, V: Vector>(norm: RmsNorm<'_, W>, from: *const T, to: *mut T) {
    let size = norm.weight.len();
    // SAFETY: all are `size` numbers long.
    unsafe {
        let mut squares = V::splat(0.0);
        let mut at = 0;
        while at < size {
            let x = load::<T, V>(from.add(at), size - at, 0.0);
            squares = x.mul_add(x, squares);
            at += V::LANES;
        }
        let mean = squares.sum() / size as f32;
        let scale = V::splat(1.0 / (mean + norm.eps).sqrt());
        let mut at = 0;
        while at < size {
            let mut x = load::<T, V>(from.add(at), size - at, 0.0).mul(scale);
            if norm.rounds_first {
                x = T::rounded(x);
            }
            let weight = load::<W, V>(norm.weight.as_ptr().add(at), size - at, 0.0);
            store(x.mul(weight), to.add(at), size - at);
            at += V::LANES;
        }
    }
}
