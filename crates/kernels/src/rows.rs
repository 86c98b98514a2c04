//! Matrices in memory, row by row.

/// A matrix whose rows may lie apart, `[count, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    data: &'a [T],
    count: usize,
    columns: usize,
    stride: usize,
}

/// The same, to be written.
#[derive(Debug)]
pub struct RowsMut<'a, T> {
    data: &'a mut [T],
    count: usize,
    columns: usize,
    stride: usize,
}

/// Panics unless a matrix of this shape lies within `len` numbers.
fn check(len: usize, count: usize, columns: usize, stride: usize) {
    assert!(
        columns <= stride,
        "rows of {columns} columns overlap at a stride of {stride}"
    );
    let needed = count
        .checked_sub(1)
        .map_or(Some(0), |last| {
            last.checked_mul(stride)?.checked_add(columns)
        })
        .unwrap_or(usize::MAX);
    assert!(
        needed <= len,
        "{count} rows of {columns} columns need {needed} numbers, not {len}"
    );
}

impl<'a, T> Rows<'a, T> {
    /// Row i is `data[i * stride .. i * stride + columns]`.
    ///
    /// # Panics
    /// If a row is not within `data`, or rows overlap.
    pub fn new(data: &'a [T], count: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), count, columns, stride);
        Self {
            data,
            count,
            columns,
            stride,
        }
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// A row.
    ///
    /// # Panics
    /// If there is none of that number.
    pub fn row(&self, index: usize) -> &'a [T] {
        assert!(index < self.count, "row {index} of {}", self.count);
        &self.data[index * self.stride..][..self.columns]
    }

    /// Numbers from the beginning of a row to that of the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The first number.
    pub(crate) fn start(&self) -> Shared<T> {
        Shared(self.data.as_ptr().cast_mut())
    }
}

impl<'a, T> RowsMut<'a, T> {
    /// As [`Rows::new`].
    ///
    /// # Panics
    /// If a row is not within `data`, or rows overlap.
    pub fn new(data: &'a mut [T], count: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), count, columns, stride);
        Self {
            data,
            count,
            columns,
            stride,
        }
    }

    /// How many rows.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Numbers from the beginning of a row to that of the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// The first number.
    pub(crate) fn start(&mut self) -> Shared<T> {
        Shared(self.data.as_mut_ptr())
    }
}

/// Where numbers lie that several threads work on, each on rows of its own.
#[derive(Debug)]
pub(crate) struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: a pointer is no access; kernels write through it to rows that no other thread has.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Of a slice that is written.
    pub(crate) fn of_mut(data: &mut [T]) -> Self {
        Self(data.as_mut_ptr())
    }

    /// # Safety
    /// The number lies within the same memory.
    #[inline(always)]
    pub(crate) unsafe fn at(self, index: usize) -> *mut T {
        // SAFETY: within the same memory, says the caller.
        unsafe { self.0.add(index) }
    }
}
