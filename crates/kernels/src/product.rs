//! Matrix products, and what is done with their results while they are in cache.

use std::ops::Range;

use crate::activation::Activation;
use crate::dot::{Dot, Factor, Products};
use crate::number::{load, store};
use crate::panels::{PANEL, Panels, TILE, multiply};
use crate::rows::{Rows, RowsMut, Shared};
use crate::threads::{Cpu, Threads};

/// Rows that are multiplied with one panel before the next: with it they stay in a core's cache.
const BLOCK: usize = 42 * TILE;
/// Fewer are not worth the way of a panel from memory, where threads can share columns instead.
const LEAST: usize = 16 * TILE;
/// Tasks for each thread.
const EACH: usize = 4;

/// Numbers of four bytes that a task needs.
pub(crate) fn space() -> usize {
    BLOCK * PANEL
}

/// What becomes of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It replaces what was there.
    Replace,
    /// It is added to what was there.
    Add,
    /// The activation of it replaces what was there.
    Activate(Activation),
    /// The rows of a weight are gates and ups, at the slots of
    /// [`gated_slots`](crate::gated_slots): the activation of a gate times its up.
    Gate(Activation),
}

/// `out = after(x @ weight^T + bias)`: sums, bias and what comes after in float32, rounded once.
/// `x` is `[rows, inputs]`, `out` `[rows, outputs]`; a bias has a number for each slot.
///
/// A row's numbers do not depend on which rows are beside it, or on the number of threads.
///
/// # Panics
/// If shapes do not fit each other, or the level has no products of `T`.
pub fn product<T: Factor>(
    cpu: Cpu<'_>,
    x: Rows<'_, T>,
    weight: Panels<'_, T>,
    bias: Option<&[T]>,
    after: After,
    mut out: RowsMut<'_, T>,
) {
    let width = if matches!(after, After::Gate(_)) {
        PANEL / 2
    } else {
        PANEL
    };
    assert_eq!(x.columns(), weight.inputs(), "inputs of a product");
    assert_eq!(x.count(), out.count(), "rows of a product");
    assert_eq!(
        out.columns().div_ceil(width),
        weight.count(),
        "panels of a product"
    );
    let slots = if width == PANEL {
        out.columns()
    } else {
        weight.count() * PANEL
    };
    assert!(
        bias.is_none_or(|bias| bias.len() == slots),
        "a bias has {slots} numbers"
    );
    let (out_stride, columns) = (out.stride(), out.columns());
    let out = out.start();
    let start = x.start();
    let grid = Grid::new(cpu.threads, x.count(), weight.count());
    cpu.threads.run(grid.tasks(), &|task| {
        let (rows, panels) = grid.of(task);
        cpu.space.with([rows.len() * PANEL], |[sums]| {
            T::run(
                cpu.level,
                Task {
                    x: (start, x.stride()),
                    rows,
                    weight,
                    panels,
                    bias,
                    after,
                    width,
                    out,
                    out_stride,
                    columns,
                    sums,
                },
            );
        });
    });
}

/// How a product is cut into tasks.
struct Grid {
    rows: usize,
    row_size: usize,
    panels: usize,
    panel_size: usize,
}

impl Grid {
    fn new(threads: &dyn Threads, rows: usize, panels: usize) -> Self {
        let wanted = if threads.count() > 1 {
            EACH * threads.count()
        } else {
            1
        };
        let row_size = rows
            .div_ceil(wanted)
            .next_multiple_of(TILE)
            .clamp(LEAST, BLOCK);
        let parts = wanted.div_ceil(rows.div_ceil(row_size).max(1));
        let panel_size = panels.div_ceil(parts).max(1);
        Self {
            rows,
            row_size,
            panels,
            panel_size,
        }
    }

    fn tasks(&self) -> usize {
        self.rows.div_ceil(self.row_size) * self.panels.div_ceil(self.panel_size)
    }

    fn of(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let across = self.panels.div_ceil(self.panel_size);
        let (row, panel) = (
            task / across * self.row_size,
            task % across * self.panel_size,
        );
        let rows = row..(row + self.row_size).min(self.rows);
        (rows, panel..(panel + self.panel_size).min(self.panels))
    }
}

struct Task<'a, T> {
    x: (Shared<T>, usize),
    rows: Range<usize>,
    weight: Panels<'a, T>,
    panels: Range<usize>,
    bias: Option<&'a [T]>,
    after: After,
    /// Columns of the output that a panel makes.
    width: usize,
    out: Shared<T>,
    out_stride: usize,
    columns: usize,
    /// `[rows, PANEL]`
    sums: *mut f32,
}

impl<T: Factor> Products<T> for Task<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Dot<T>>(self) {
        let count = self.rows.len();
        let sums = self.sums;
        for panel in self.panels.clone() {
            // SAFETY: rows and columns lie within the matrices, whose shapes were checked, and
            // this task alone has these rows and columns of the output.
            unsafe {
                let x = (
                    self.x.0.at(self.rows.start * self.x.1).cast_const(),
                    self.x.1,
                );
                let inputs = self.weight.inputs();
                let factor = self.weight.panel(panel);
                multiply::<V, T>(x, count, inputs, factor, (sums, PANEL), false);
                for row in 0..count {
                    let first = panel * self.width;
                    let out = self
                        .out
                        .at((self.rows.start + row) * self.out_stride + first);
                    let columns = self.width.min(self.columns - first);
                    self.finish::<V>(panel, sums.add(row * PANEL), out, columns);
                }
            }
        }
    }
}

impl<T: Factor> Task<'_, T> {
    /// Writes what a panel makes of one row.
    #[inline(always)]
    unsafe fn finish<V: Dot<T>>(
        &self,
        panel: usize,
        sums: *const f32,
        out: *mut T,
        columns: usize,
    ) {
        let mut column = 0;
        while column < columns {
            let count = columns - column;
            // SAFETY: sums are a whole panel; columns lie within the output.
            unsafe {
                let out = out.add(column);
                let mut value = self.biased::<V>(panel, column, sums, count);
                match self.after {
                    After::Replace => {}
                    After::Add => value = value.add(load::<T, V>(out, count, 0.0)),
                    After::Activate(activation) => value = activation.of(value),
                    After::Gate(activation) => {
                        let up = self.biased::<V>(panel, PANEL / 2 + column, sums, count);
                        value = activation.of(value).mul(up);
                    }
                }
                store(value, out, count);
            }
            column += V::LANES;
        }
    }

    /// Sums of a panel with their bias, of which `count` numbers are there.
    #[inline(always)]
    unsafe fn biased<V: Dot<T>>(
        &self,
        panel: usize,
        row: usize,
        sums: *const f32,
        count: usize,
    ) -> V {
        // SAFETY: sums are a whole panel; the bias has a number for each slot that counts.
        unsafe {
            let sum = V::load(sums.add(row));
            match self.bias {
                None => sum,
                Some(bias) => {
                    let bias = bias.as_ptr().add(panel * PANEL + row);
                    sum.add(load::<T, V>(bias, count, 0.0))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Many(usize);

    // SAFETY: one task after the other.
    unsafe impl Threads for Many {
        fn count(&self) -> usize {
            self.0
        }

        fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
            (0..tasks).for_each(task);
        }
    }

    #[test]
    fn a_grid_covers_every_panel_of_every_row_once() {
        for threads in [1, 2, 3, 64] {
            for (rows, panels) in [(1, 1), (7, 3), (256, 9), (2048, 48), (5000, 1), (0, 4)] {
                let grid = Grid::new(&Many(threads), rows, panels);
                let mut seen = vec![0; rows * panels];
                for task in 0..grid.tasks() {
                    let (rows, range) = grid.of(task);
                    for row in rows {
                        range
                            .clone()
                            .for_each(|panel| seen[row * panels + panel] += 1);
                    }
                }
                assert!(
                    seen.into_iter().all(|times| times == 1),
                    "{threads} {rows} {panels}"
                );
            }
        }
    }
}
