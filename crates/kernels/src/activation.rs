//! Activations, with a gate or without.

use std::ops::Range;

use crate::function::exp;
use crate::level::Kernel;
use crate::number::{Number, load, store};
use crate::rows::{RowsMut, Shared};
use crate::threads::{Cpu, spread};
use crate::vector::Vector;

/// A function between the projections of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// x / (1 + e^-x).
    Silu,
    /// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    GeluTanh,
    /// max(x, 0).
    Relu,
}

impl Activation {
    #[inline(always)]
    pub(crate) unsafe fn of<V: Vector>(self, x: V) -> V {
        unsafe {
            match self {
                Self::Silu => {
                    let minus = V::splat(0.0).sub(x);
                    x.div(exp(minus).add(V::splat(1.0)))
                }
                Self::GeluTanh => {
                    // (1 + tanh(y)) / 2 = 1 / (1 + e^-2y), in which nothing cancels.
                    let cubic = x.mul(x).mul_add(V::splat(0.044_715), V::splat(1.0));
                    let minus = cubic.mul(x).mul(V::splat(-2.0 * 0.797_884_6));
                    x.div(exp(minus).add(V::splat(1.0)))
                }
                Self::Relu => V::splat(0.0).max(x),
            }
        }
    }

    /// Replaces the first `inner` columns of `x`, `[rows, inner]`, by the activation of them; if
    /// the rows have `2 * inner` columns, multiplied by the second half. In float32, rounded once.
    ///
    /// # Panics
    /// If there are other numbers of columns, or the processor does not have the level.
    pub fn apply<T: Number>(self, cpu: Cpu<'_>, mut x: RowsMut<'_, T>, inner: usize) {
        let gated = x.columns() == 2 * inner;
        assert!(
            gated || x.columns() == inner,
            "{} columns for {inner}",
            x.columns()
        );
        let (place, stride) = (x.start(), x.stride());
        spread(cpu.threads, x.count(), 1, usize::MAX, |rows| {
            cpu.level.run(Task {
                activation: self,
                gated,
                inner,
                place,
                stride,
                rows,
            });
        });
    }
}

struct Task<T> {
    activation: Activation,
    gated: bool,
    inner: usize,
    place: Shared<T>,
    stride: usize,
    rows: Range<usize>,
}

impl<T: Number> Kernel for Task<T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let inner = self.inner;
        for row in self.rows {
            // SAFETY: rows lie within the matrix; each is one task's.
            unsafe {
                let x = self.place.at(row * self.stride);
                let mut at = 0;
                while at < inner {
                    let mut y = self.activation.of(load::<T, V>(x.add(at), inner - at, 0.0));
                    if self.gated {
                        y = y.mul(load::<T, V>(x.add(inner + at), inner - at, 0.0));
                    }
                    store(y, x.add(at), inner - at);
                    at += V::LANES;
                }
            }
        }
    }
}
