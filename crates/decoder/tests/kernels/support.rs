//! Matrices of random numbers, threads, and how far from an exact result a kernel may be.
//!
//! With unit roundoff u = 2^-24 of float32, a sum of n products is off by at most `n u` times the
//! sum of their magnitudes, to first order and in any order of the sum. What is stored is rounded
//! once more, by at most [`Dtype::HALF`] of it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use assay_kernels::{Cpu, Factor, Level, Rows, RowsMut, Space, Threads, bf16};
use fastrand::Rng;
use tch::{Kind, Tensor};

/// Unit roundoff of float32.
pub(crate) const UNIT: f64 = 1.0 / (1 << 24) as f64;
/// The least normal number of both dtypes: products of bfloat16 take what is below for zero.
pub(crate) const LEAST: f64 = f32::MIN_POSITIVE as f64;

pub(crate) trait Dtype: Factor {
    const KIND: Kind;
    /// Half a unit in the last place, as a part of the number.
    const HALF: f64;

    fn bits(self) -> u32;
}

impl Dtype for f32 {
    const KIND: Kind = Kind::Float;
    const HALF: f64 = UNIT;

    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Dtype for bf16 {
    const KIND: Kind = Kind::BFloat16;
    const HALF: f64 = 1.0 / (1 << 8) as f64;

    fn bits(self) -> u32 {
        u32::from(self.to_bits())
    }
}

/// What kernels compute with. Heads have 256 numbers at most.
pub(crate) fn cpu(level: Level, threads: &dyn Threads) -> Cpu<'_> {
    thread_local! {
        /// Kept for the life of the process, as threads of tests are few.
        static SPACE: &'static Space = Box::leak(Box::new(Space::new(3, 256).unwrap()));
    }
    Cpu {
        level,
        threads,
        space: SPACE.with(|space| *space),
    }
}

/// The instruction sets of this processor.
pub(crate) fn levels() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|level| level.is_available())
}

/// Those of them that multiply matrices of a dtype.
pub(crate) fn multiplying<T: Factor>() -> impl Iterator<Item = Level> {
    levels().filter(|level| T::multiplies(*level))
}

/// Three threads, which take one task after the other.
pub(crate) struct Three;

// SAFETY: numbers are handed out once, to three threads, which end with the scope.
#[allow(unsafe_code)]
unsafe impl Threads for Three {
    fn count(&self) -> usize {
        3
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..self.count() {
                scope.spawn(|| {
                    loop {
                        match next.fetch_add(1, Ordering::Relaxed) {
                            index if index < tasks => task(index),
                            _ => break,
                        }
                    }
                });
            }
        });
    }
}

/// Columns of a wider matrix, whose other columns are NaN: it shows where they are read, and where
/// they are written.
#[derive(Clone)]
pub(crate) struct Matrix<T> {
    data: Vec<T>,
    rows: usize,
    columns: usize,
    before: usize,
    stride: usize,
}

impl<T: Dtype> Matrix<T> {
    /// With `gap` columns of others in a row.
    pub(crate) fn new(
        [rows, columns, gap]: [usize; 3],
        mut number: impl FnMut(usize, usize) -> f32,
    ) -> Self {
        let (stride, before) = (columns + gap, gap / 2);
        let mut data = vec![T::of(f32::NAN); rows * stride + before];
        for row in 0..rows {
            for column in 0..columns {
                data[before + row * stride + column] = T::of(number(row, column));
            }
        }
        Self {
            data,
            rows,
            columns,
            before,
            stride,
        }
    }

    /// Even between `-size` and `size`.
    pub(crate) fn random(shape: [usize; 3], size: f32, rng: &mut Rng) -> Self {
        Self::new(shape, |_, _| random(size, rng))
    }

    /// Some of its rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        let data =
            self.data[rows.start * self.stride..rows.end * self.stride + self.before].to_vec();
        Self {
            data,
            rows: rows.len(),
            ..*self
        }
    }

    pub(crate) fn rows(&self) -> Rows<'_, T> {
        Rows::new(
            &self.data[self.before..],
            self.rows,
            self.columns,
            self.stride,
        )
    }

    pub(crate) fn rows_mut(&mut self) -> RowsMut<'_, T> {
        RowsMut::new(
            &mut self.data[self.before..],
            self.rows,
            self.columns,
            self.stride,
        )
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [T] {
        &mut self.data[self.before + row * self.stride..][..self.columns]
    }

    /// The numbers of all rows.
    pub(crate) fn numbers(&self) -> Vec<T> {
        let rows = self.rows();
        (0..self.rows)
            .flat_map(|row| rows.row(row).iter().copied())
            .collect()
    }

    pub(crate) fn bits(&self) -> Vec<u32> {
        self.numbers().into_iter().map(Dtype::bits).collect()
    }

    /// The same numbers in float64, `[rows, columns]`.
    pub(crate) fn exact(&self) -> Tensor {
        let numbers: Vec<f64> = self.numbers().iter().map(|n| f64::from(n.wide())).collect();
        Tensor::from_slice(&numbers).view([signed(self.rows), signed(self.columns)])
    }

    /// The same numbers in their dtype.
    pub(crate) fn tensor(&self) -> Tensor {
        self.exact().to_kind(T::KIND)
    }

    /// Fails if a column beside these was written.
    pub(crate) fn check_gaps(&self) {
        let untouched = T::of(f32::NAN).bits();
        for (index, number) in self.data.iter().enumerate() {
            let inside = index >= self.before
                && (index - self.before) % self.stride < self.columns
                && (index - self.before) / self.stride < self.rows;
            assert!(inside || number.bits() == untouched, "number {index}");
        }
    }
}

pub(crate) fn random(size: f32, rng: &mut Rng) -> f32 {
    size * (2.0 * rng.f32() - 1.0)
}

pub(crate) fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap()
}

pub(crate) fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).reshape([-1])).unwrap()
}

/// Fails unless each number is what is wanted, but for its `error` and for being rounded to `T`.
/// What is not finite has to be so in the same way.
pub(crate) fn check<T: Dtype>(got: &Tensor, wanted: &Tensor, error: &Tensor, what: &str) {
    let (got, wanted) = (values(got), values(wanted));
    let error = values(error);
    assert_eq!(
        (got.len(), error.len()),
        (wanted.len(), wanted.len()),
        "{what}"
    );
    for (index, ((got, wanted), error)) in got.into_iter().zip(wanted).zip(error).enumerate() {
        let allowed = error + T::HALF * (wanted.abs() + error) + LEAST;
        let same = got == wanted || (got.is_nan() && wanted.is_nan());
        assert!(
            same || (got - wanted).abs() <= allowed,
            "{what}: number {index} is {got}, not {wanted}, which is more than {allowed} off"
        );
    }
}

/// Whether a call was refused.
pub(crate) fn refuses<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}
