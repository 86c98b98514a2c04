//! Rotary position embedding, halves rotated against each other.

use std::ops::Range;

use crate::level::Kernel;
use crate::number::{Number, load, store};
use crate::rows::{Rows, RowsMut, Shared};
use crate::threads::{Cpu, spread};
use crate::vector::Vector;

/// Rotates the first numbers of each head: with their halves `(a, b)`, to
/// `(a cos - b sin, b cos + a sin)`, in float32, rounded once (Su et al. 2021, in the order of
/// GPT-NeoX).
///
/// A row of `x` is heads of `head_dim` numbers; `cos` and `sin` are `[rows, half]`, of which the
/// first `2 * half` numbers of a head are rotated.
///
/// # Panics
/// If shapes do not fit each other, or the processor does not have the level.
pub fn rotate<T: Number>(
    cpu: Cpu<'_>,
    mut x: RowsMut<'_, T>,
    head_dim: usize,
    [cos, sin]: [Rows<'_, T>; 2],
) {
    let (rows, half) = (cos.count(), cos.columns());
    assert_eq!(
        (rows, half),
        (sin.count(), sin.columns()),
        "shapes of sines and cosines"
    );
    assert_eq!(x.count(), rows, "rows of a rotation");
    assert!(
        2 * half <= head_dim,
        "{half} angles for heads of {head_dim}"
    );
    assert!(
        head_dim > 0 && x.columns().is_multiple_of(head_dim),
        "columns are not whole heads"
    );
    let task = Task {
        stride: x.stride(),
        heads: x.columns() / head_dim,
        x: x.start(),
        head_dim,
        half,
        cos: (cos.start(), cos.stride()),
        sin: (sin.start(), sin.stride()),
        rows: 0..0,
    };
    spread(cpu.threads, rows, 1, usize::MAX, |rows| {
        cpu.level.run(Task {
            rows,
            ..task.clone()
        });
    });
}

#[derive(Clone)]
struct Task<T> {
    x: Shared<T>,
    stride: usize,
    heads: usize,
    head_dim: usize,
    half: usize,
    cos: (Shared<T>, usize),
    sin: (Shared<T>, usize),
    rows: Range<usize>,
}

impl<T: Number> Kernel for Task<T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let half = self.half;
        for row in self.rows {
            // SAFETY: rows and heads lie within the matrices, whose shapes were checked; each row
            // is one task's.
            unsafe {
                let cos = self.cos.0.at(row * self.cos.1);
                let sin = self.sin.0.at(row * self.sin.1);
                for head in 0..self.heads {
                    let first = self.x.at(row * self.stride + head * self.head_dim);
                    let second = first.add(half);
                    let mut at = 0;
                    while at < half {
                        let cos = load::<T, V>(cos.add(at), half - at, 0.0);
                        let sin = load::<T, V>(sin.add(at), half - at, 0.0);
                        let a = load::<T, V>(first.add(at), half - at, 0.0);
                        let b = load::<T, V>(second.add(at), half - at, 0.0);
                        let minus = V::splat(0.0).sub(sin);
                        store(b.mul_add(minus, a.mul(cos)), first.add(at), half - at);
                        store(a.mul_add(sin, b.mul(cos)), second.add(at), half - at);
                        at += V::LANES;
                    }
                }
            }
        }
    }
}
