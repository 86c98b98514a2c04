//! Matrices laid out for products.
#![allow(clippy::needless_range_loop)] // arrays are registers here, and loops are unrolled

use crate::dot::{Dot, Factor};
use crate::rows::Rows;

/// Rows of a matrix that lie side by side.
pub const PANEL: usize = 64;
/// Rows of the other factor that are multiplied with a panel at once: with a panel's sums they
/// fill the registers.
pub(crate) const TILE: usize = 6;
/// Bytes of a row that are multiplied at once: so much of a panel stays in a core's own cache.
const DEPTH_BYTES: usize = 2048;

/// A matrix `[slots, inputs]` in panels of [`PANEL`] rows: of each panel the first `STEP` numbers
/// of all its rows, then the next, so that a product reads it from front to back. What is behind
/// the last row is zero.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a, T> {
    data: &'a [T],
    inputs: usize,
}

/// Where numbers of `inputs` a row are in panels.
fn place<T: Factor>(slot: usize, input: usize, inputs: usize) -> usize {
    let (panel, row) = (slot / PANEL, slot % PANEL);
    let (step, part) = (input / T::STEP, input % T::STEP);
    panel * PANEL * inputs + (step * PANEL + row) * T::STEP + part
}

impl<'a, T: Factor> Panels<'a, T> {
    /// Whether rows of so many numbers can be laid out.
    pub fn takes(inputs: usize) -> bool {
        inputs > 0 && inputs.is_multiple_of(T::STEP)
    }

    /// The length of a matrix with so many slots for rows.
    pub fn len_of(slots: usize, inputs: usize) -> usize {
        slots.next_multiple_of(PANEL) * inputs
    }

    /// Panels of rows of `inputs` numbers.
    ///
    /// # Panics
    /// If `data` is not whole panels, or rows of that length cannot be laid out.
    pub fn new(data: &'a [T], inputs: usize) -> Self {
        assert!(Self::takes(inputs), "panels of {inputs} inputs");
        assert!(
            data.len().is_multiple_of(PANEL * inputs),
            "{} numbers are not whole panels",
            data.len()
        );
        Self { data, inputs }
    }

    /// How many panels.
    pub fn count(&self) -> usize {
        self.data.len() / (PANEL * self.inputs)
    }

    /// Some of the panels, from number `first` on; fewer than `count` if there are no more.
    #[must_use]
    pub fn part(&self, first: usize, count: usize) -> Self {
        let len = PANEL * self.inputs;
        let end = (first + count).min(self.count());
        Self {
            data: &self.data[first.min(end) * len..end * len],
            inputs: self.inputs,
        }
    }

    /// Numbers of a row.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn panel(&self, index: usize) -> *const T {
        self.data[index * PANEL * self.inputs..].as_ptr()
    }

    /// Copies the row at a slot.
    ///
    /// # Panics
    /// If there is no such slot, or `row` has another length.
    pub fn copy_row(&self, slot: usize, row: &mut [T]) {
        assert_eq!(row.len(), self.inputs, "numbers of a row");
        assert!(slot < self.count() * PANEL, "no slot {slot}");
        let start = place::<T>(slot, 0, self.inputs);
        let steps = self.data[start..].chunks(PANEL * T::STEP);
        for (step, numbers) in steps.zip(row.chunks_exact_mut(T::STEP)) {
            numbers.copy_from_slice(&step[..T::STEP]);
        }
    }

    /// Lays rows out: row i goes to slot `slot_of(i)`.
    ///
    /// # Panics
    /// If a slot lies outside of `panels`, or rows of that length cannot be laid out.
    pub fn fill(panels: &mut [T], rows: Rows<'_, T>, slot_of: impl Fn(usize) -> usize) {
        let inputs = rows.columns();
        assert!(Self::takes(inputs), "panels of {inputs} inputs");
        for row in 0..rows.count() {
            let slot = slot_of(row);
            assert!(
                (slot / PANEL + 1) * PANEL * inputs <= panels.len(),
                "no slot {slot}"
            );
            for (input, number) in rows.row(row).iter().enumerate() {
                panels[place::<T>(slot, input, inputs)] = *number;
            }
        }
    }
}

/// The slots of gate and up number `index` of a gated MLP: halves of one panel, so that they are
/// multiplied at once and meet in the same registers.
pub fn gated_slots(index: usize) -> [usize; 2] {
    let half = PANEL / 2;
    let gate = index / half * PANEL + index % half;
    [gate, gate + half]
}

/// `out = a @ panel^T` of some rows: `out` is float32 `[rows, PANEL]` in rows of `stride`, `a`
/// `[rows, inputs]` in rows of `a_stride`.
///
/// # Safety
/// The processor has the instructions, and the pointers are valid for these shapes.
#[inline(always)]
pub(crate) unsafe fn multiply<V: Dot<T>, T: Factor>(
    (a, a_stride): (*const T, usize),
    rows: usize,
    inputs: usize,
    panel: *const T,
    (out, stride): (*mut f32, usize),
    add: bool,
) {
    let depth = DEPTH_BYTES / size_of::<T>();
    let mut first = 0;
    while first < inputs {
        let count = depth.min(inputs - first);
        let add = add || first > 0;
        // SAFETY: a part of the shapes that the pointers are valid for.
        unsafe {
            let steps = count / T::STEP;
            let a = a.add(first);
            let panel = panel.add(first * PANEL);
            let mut row = 0;
            while row + TILE <= rows {
                let a = (a.add(row * a_stride), a_stride);
                tile::<V, T, TILE>(a, panel, steps, (out.add(row * stride), stride), add);
                row += TILE;
            }
            let a = (a.add(row * a_stride), a_stride);
            let out = (out.add(row * stride), stride);
            match rows - row {
                1 => tile::<V, T, 1>(a, panel, steps, out, add),
                2 => tile::<V, T, 2>(a, panel, steps, out, add),
                3 => tile::<V, T, 3>(a, panel, steps, out, add),
                4 => tile::<V, T, 4>(a, panel, steps, out, add),
                5 => tile::<V, T, 5>(a, panel, steps, out, add),
                _ => {}
            }
        }
        first += count;
    }
}

/// Some rows with a whole panel.
#[inline(always)]
unsafe fn tile<V: Dot<T>, T: Factor, const ROWS: usize>(
    a: (*const T, usize),
    panel: *const T,
    steps: usize,
    (out, stride): (*mut f32, usize),
    add: bool,
) {
    let mut column = 0;
    while column < PANEL {
        // SAFETY: a part of the panel and of the output.
        unsafe {
            let (panel, out) = (panel.add(column * T::STEP), (out.add(column), stride));
            // As many vectors as leave registers for the operands.
            if V::LANES == 16 {
                part::<V, T, ROWS, 4>(a, panel, steps, out, add);
                column += 4 * V::LANES;
            } else {
                part::<V, T, ROWS, 2>(a, panel, steps, out, add);
                column += 2 * V::LANES;
            }
        }
    }
}

/// Some rows with `COLUMNS` vectors of a panel. Each sum is made in the order of the inputs,
/// however rows and columns are cut.
#[inline(always)]
unsafe fn part<V: Dot<T>, T: Factor, const ROWS: usize, const COLUMNS: usize>(
    (a, a_stride): (*const T, usize),
    panel: *const T,
    steps: usize,
    (out, stride): (*mut f32, usize),
    add: bool,
) {
    // SAFETY: valid for these shapes, says the caller.
    unsafe {
        let mut sums = [[V::splat(0.0); COLUMNS]; ROWS];
        if add {
            for row in 0..ROWS {
                for column in 0..COLUMNS {
                    sums[row][column] = V::load(out.add(row * stride + column * V::LANES));
                }
            }
        }
        let mut b = panel;
        let mut a = a;
        for _ in 0..steps {
            let mut operands = [V::operand(b); COLUMNS];
            for column in 1..COLUMNS {
                operands[column] = V::operand(b.add(column * V::LANES * T::STEP));
            }
            for row in 0..ROWS {
                let repeated = V::repeated(a.add(row * a_stride));
                for column in 0..COLUMNS {
                    sums[row][column] = sums[row][column].dot(repeated, operands[column]);
                }
            }
            a = a.add(T::STEP);
            b = b.add(PANEL * T::STEP);
        }
        for row in 0..ROWS {
            for column in 0..COLUMNS {
                sums[row][column].store(out.add(row * stride + column * V::LANES));
            }
        }
    }
}
