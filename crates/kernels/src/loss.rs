//! The negative log-likelihood of targets.

use std::ops::Range;

use crate::dot::{Dot, Factor, Products};
use crate::function::{exp, tanh};
use crate::level::Kernel;
use crate::number::Number;
use crate::panels::{PANEL, Panels, TILE, multiply};
use crate::rows::{Rows, Shared};
use crate::threads::{Cpu, spread};
use crate::vector::Vector;

/// Panels whose logits are made before they are used: with the rows they stay in cache.
const PANELS: usize = 4;
/// Logits of a row that are taken at a time. So many exponentials at most are added in float32
/// before the sum goes on in float64.
const CHUNK: usize = PANELS * PANEL;
/// Rows that are multiplied with one panel before the next.
const BLOCK: usize = 42 * TILE;

/// Numbers of four bytes that a task needs.
pub(crate) fn space() -> usize {
    BLOCK * CHUNK
}

/// What makes logits of the head's outputs, which were rounded to their dtype.
#[derive(Clone, Copy, Debug)]
pub struct Logits {
    /// Multiplies them.
    pub scale: f32,
    /// Bounds them then: `c tanh(x / c)`.
    pub softcap: Option<f32>,
}

impl Logits {
    /// Logits that are the head's outputs.
    pub const PLAIN: Self = Self {
        scale: 1.0,
        softcap: None,
    };

    #[inline(always)]
    unsafe fn of<V: Vector>(self, x: V) -> V {
        unsafe {
            let x = x.mul(V::splat(self.scale));
            match self.softcap {
                None => x,
                Some(cap) => tanh(x.div(V::splat(cap))).mul(V::splat(cap)),
            }
        }
    }
}

/// `-ln softmax(logits)[target]` of each row in nats.
///
/// `outputs` are those of the head, `[rows, vocab_size]`. Maximum and exponential are float32, the
/// sum is float64 over float32 blocks of 256, logarithm and subtraction are float64. NaN in a row,
/// or an infinite maximum, gives NaN.
///
/// # Panics
/// If there is not one target below `vocab_size` for each row, or the processor does not have the
/// level.
pub fn nll<T: Number>(
    cpu: Cpu<'_>,
    outputs: Rows<'_, T>,
    logits: Logits,
    targets: &[usize],
) -> Vec<f64> {
    check(targets, outputs.count(), outputs.columns());
    let mut values = vec![0.0; targets.len()];
    let place = Shared::of_mut(&mut values);
    let start = outputs.start();
    spread(cpu.threads, targets.len(), 1, usize::MAX, |rows| {
        cpu.level.run(Plain {
            outputs: (start, outputs.stride()),
            vocab_size: outputs.columns(),
            logits,
            targets,
            rows,
            values: place,
        });
    });
    values
}

/// The last matrix of a model.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a, T> {
    /// `[vocab_size, inputs]`
    pub weight: Panels<'a, T>,
    /// `[vocab_size]`
    pub bias: Option<&'a [T]>,
    /// Tokens there are logits for.
    pub vocab_size: usize,
    /// What makes logits of its outputs.
    pub logits: Logits,
}

impl<T: Factor> Head<'_, T> {
    /// As [`nll`], of the outputs `x @ weight^T + bias`, which exist a few at a time: `x` is
    /// `[rows, inputs]`.
    ///
    /// # Panics
    /// If shapes do not fit each other, there is not one target below `vocab_size` for each row, or
    /// the level has no products of `T`.
    pub fn nll(self, cpu: Cpu<'_>, x: Rows<'_, T>, targets: &[usize]) -> Vec<f64> {
        let Self {
            weight,
            bias,
            vocab_size,
            ..
        } = self;
        check(targets, x.count(), vocab_size);
        assert_eq!(x.columns(), weight.inputs(), "inputs of the head");
        assert_eq!(
            vocab_size.div_ceil(PANEL),
            weight.count(),
            "panels of the head"
        );
        assert!(
            bias.is_none_or(|bias| bias.len() == vocab_size),
            "numbers of the head's bias"
        );
        let mut values = vec![0.0; targets.len()];
        let place = Shared::of_mut(&mut values);
        let start = x.start();
        spread(cpu.threads, targets.len(), TILE, BLOCK, |rows| {
            cpu.space.with([rows.len() * CHUNK], |[outputs]| {
                let x = (start, x.stride());
                T::run(
                    cpu.level,
                    Fused {
                        x,
                        head: self,
                        targets,
                        rows,
                        values: place,
                        outputs,
                    },
                );
            });
        });
        values
    }
}

fn check(targets: &[usize], rows: usize, vocab_size: usize) {
    assert_eq!(targets.len(), rows, "a target for each row");
    assert!(
        targets.iter().all(|target| *target < vocab_size),
        "targets in the vocabulary"
    );
}

/// A row's logits so far.
#[derive(Clone, Copy)]
struct Row {
    target: usize,
    highest: f32,
    /// Of e^(logit - highest).
    sum: f64,
    /// The logit of the target, once it was there.
    wanted: f32,
}

impl Row {
    fn new(target: usize) -> Self {
        Self {
            target,
            highest: f32::NEG_INFINITY,
            sum: 0.0,
            wanted: f32::NAN,
        }
    }

    fn nll(self) -> f64 {
        self.sum.ln() + (f64::from(self.highest) - f64::from(self.wanted))
    }

    /// Takes `count` more outputs of the head, the first of which is that of token `first`. They
    /// are changed to logits where they are, in space for [`CHUNK`].
    #[inline(always)]
    unsafe fn take<T: Number, V: Vector>(
        &mut self,
        outputs: *mut f32,
        first: usize,
        count: usize,
        logits: Logits,
    ) {
        // Whole vectors; what lies behind the numbers is minus infinity in the end.
        let end = count.next_multiple_of(V::LANES);
        // SAFETY: valid for `CHUNK` numbers, says the caller.
        unsafe {
            let mut at = 0;
            while at < end {
                let x = logits.of(T::rounded(V::load(outputs.add(at))));
                x.store(outputs.add(at));
                at += V::LANES;
            }
            for at in count..end {
                *outputs.add(at) = f32::NEG_INFINITY;
            }
            if (first..first + count).contains(&self.target) {
                self.wanted = *outputs.add(self.target - first);
            }
            let mut highest = V::splat(f32::NEG_INFINITY);
            let mut at = 0;
            while at < end {
                highest = highest.max(V::load(outputs.add(at)));
                at += V::LANES;
            }
            let highest = highest.highest();
            if highest > self.highest {
                self.sum *= (f64::from(self.highest) - f64::from(highest)).exp();
                self.highest = highest;
            }
            // Where nothing is above minus infinity yet, nothing is to be taken away either.
            let is_any = self.highest > f32::NEG_INFINITY;
            let shift = V::splat(if is_any { self.highest } else { 0.0 });
            // Four sums are rounded a quarter as often as one.
            let mut sums = [V::splat(0.0); 4];
            let mut at = 0;
            while at + 4 * V::LANES <= end {
                let mut part = 0;
                while part < 4 {
                    let x = V::load(outputs.add(at + part * V::LANES));
                    sums[part] = sums[part].add(exp(x.sub(shift)));
                    part += 1;
                }
                at += 4 * V::LANES;
            }
            while at < end {
                sums[0] = sums[0].add(exp(V::load(outputs.add(at)).sub(shift)));
                at += V::LANES;
            }
            let [a, b, c, d] = sums;
            self.sum += f64::from(a.add(b).add(c.add(d)).sum());
        }
    }
}

struct Plain<'a, T> {
    outputs: (Shared<T>, usize),
    vocab_size: usize,
    logits: Logits,
    targets: &'a [usize],
    rows: Range<usize>,
    values: Shared<f64>,
}

impl<T: Number> Kernel for Plain<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        let mut chunk = [0.0; CHUNK];
        let chunk = chunk.as_mut_ptr();
        for index in self.rows {
            let mut row = Row::new(self.targets[index]);
            let mut first = 0;
            while first < self.vocab_size {
                let count = CHUNK.min(self.vocab_size - first);
                // SAFETY: rows and columns lie within the matrix.
                unsafe {
                    let outputs = self.outputs.0.at(index * self.outputs.1 + first);
                    for at in 0..count {
                        *chunk.add(at) = (*outputs.add(at)).wide();
                    }
                    row.take::<T, V>(chunk, first, count, self.logits);
                }
                first += count;
            }
            // SAFETY: each row's value is one task's.
            unsafe { *self.values.at(index) = row.nll() };
        }
    }
}

struct Fused<'a, T> {
    x: (Shared<T>, usize),
    head: Head<'a, T>,
    targets: &'a [usize],
    rows: Range<usize>,
    values: Shared<f64>,
    /// `[rows, CHUNK]`
    outputs: *mut f32,
}

impl<T: Factor> Products<T> for Fused<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Dot<T>>(self) {
        let Head {
            weight,
            bias,
            vocab_size,
            logits,
        } = self.head;
        let count = self.rows.len();
        let targets = &self.targets[self.rows.clone()];
        let mut rows: Vec<Row> = targets.iter().map(|target| Row::new(*target)).collect();
        let outputs = self.outputs;
        let mut first = 0;
        while first < vocab_size {
            let columns = CHUNK.min(vocab_size - first);
            // SAFETY: rows and panels lie within the matrices, whose shapes were checked.
            unsafe {
                let x = (
                    self.x.0.at(self.rows.start * self.x.1).cast_const(),
                    self.x.1,
                );
                for panel in 0..columns.div_ceil(PANEL) {
                    let factor = weight.panel(first / PANEL + panel);
                    let out = (outputs.add(panel * PANEL), CHUNK);
                    multiply::<V, T>(x, count, weight.inputs(), factor, out, false);
                }
                for (index, row) in rows.iter_mut().enumerate() {
                    let outputs = outputs.add(index * CHUNK);
                    if let Some(bias) = bias {
                        for at in 0..columns {
                            *outputs.add(at) += bias[first + at].wide();
                        }
                    }
                    row.take::<T, V>(outputs, first, columns, logits);
                }
            }
            first += columns;
        }
        for (index, row) in rows.into_iter().enumerate() {
            // SAFETY: each row's value is one task's.
            unsafe { *self.values.at(self.rows.start + index) = row.nll() };
        }
    }
}
