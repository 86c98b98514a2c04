//! Memory for what tasks compute on the way.

use std::collections::TryReserveError;
use std::sync::{Mutex, PoisonError};

use crate::{attention, loss, product};

/// Sixteen numbers in one line of the cache: vectors of them never lie in two.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; LINE]);

const LINE: usize = 16;

/// Memory for the tasks of kernels, a part for each thread. It is made once and used by one kernel
/// after the other: the system would map fresh memory page by page each time.
pub struct Space {
    lines: *mut Line,
    /// Owns the lines.
    _memory: Vec<Line>,
    /// Lines of a part.
    len: usize,
    /// Parts that no task has.
    free: Mutex<Vec<usize>>,
}

// SAFETY: each part is one task's at a time.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

impl Space {
    /// For so many threads, and heads of so many numbers.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn new(threads: usize, head_dim: usize) -> Result<Self, TryReserveError> {
        let len = Self::lines(head_dim);
        let mut memory = Vec::new();
        memory.try_reserve_exact(threads * len)?;
        memory.resize(threads * len, Line([0.0; LINE]));
        Ok(Self {
            lines: memory.as_mut_ptr(),
            _memory: memory,
            len,
            free: Mutex::new((0..threads).collect()),
        })
    }

    /// Bytes that it takes.
    pub fn bytes(threads: usize, head_dim: usize) -> usize {
        threads * Self::lines(head_dim) * size_of::<Line>()
    }

    fn lines(head_dim: usize) -> usize {
        let lens = [product::space(), loss::space(), attention::space(head_dim)];
        let most = lens.into_iter().max().unwrap_or(0);
        // Each of the buffers of a task begins with a line.
        most.div_ceil(LINE) + 3
    }

    /// Calls `task` with as many buffers as lengths are given, in numbers of four bytes. They begin
    /// with a line of the cache and hold any numbers.
    ///
    /// # Panics
    /// If more tasks run than there are threads, or the buffers do not fit.
    pub(crate) fn with<const BUFFERS: usize>(
        &self,
        lens: [usize; BUFFERS],
        task: impl FnOnce([*mut f32; BUFFERS]),
    ) {
        let part = self
            .free()
            .pop()
            .expect("no more tasks at once than threads");
        let mut start = part * self.len;
        let end = start + self.len;
        let buffers = lens.map(|len| {
            // SAFETY: within the memory, by the line below, before anything is written.
            let buffer = unsafe { self.lines.add(start) };
            start += len.div_ceil(LINE);
            assert!(start <= end, "buffers fit in the part of a thread");
            buffer.cast()
        });
        task(buffers);
        self.free().push(part);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
