//! Who computes: kernels cut their work into tasks and leave it to the caller to spread them.

use std::ops::Range;

use crate::level::Level;
use crate::space::Space;

/// Threads that share work.
///
/// # Safety
/// Kernels write to one matrix from several tasks: `run` runs each number below `tasks` once and no
/// other, at most `count` of them at the same time, and returns after the last has ended.
pub unsafe trait Threads: Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Runs `task` for each number below `tasks`, in any order, and returns when all have ended.
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));
}

/// What kernels compute with.
#[derive(Clone, Copy)]
pub struct Cpu<'a> {
    /// An instruction set that the processor has.
    pub level: Level,
    /// Who shares the work.
    pub threads: &'a dyn Threads,
    /// Made for as many threads, and for the heads of the model.
    pub space: &'a Space,
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

// SAFETY: one task after the other.
unsafe impl Threads for Alone {
    fn count(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }
}

/// Runs `task` on ranges that cover `0..count`: each of a multiple of `unit` and at most `most`,
/// but for the last, and several for each thread, so that none waits long for the others.
pub(crate) fn spread(
    threads: &dyn Threads,
    count: usize,
    unit: usize,
    most: usize,
    task: impl Fn(Range<usize>) + Sync,
) {
    /// Ranges a thread, where there is enough to do.
    const EACH: usize = 4;
    let alone = threads.count() <= 1;
    let parts = if alone { 1 } else { EACH * threads.count() };
    let size = count
        .div_ceil(parts)
        .next_multiple_of(unit)
        .min(most.max(unit));
    if size == 0 {
        return;
    }
    threads.run(count.div_ceil(size), &|index| {
        let start = index * size;
        task(start..(start + size).min(count));
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Several(usize);

    // SAFETY: one task after the other.
    unsafe impl Threads for Several {
        fn count(&self) -> usize {
            self.0
        }

        fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
            (0..tasks).rev().for_each(task);
        }
    }

    #[test]
    fn ranges_cover_everything_once() {
        for (threads, count, unit, most) in [
            (1, 0, 6, 12),
            (1, 100, 6, 1000),
            (2, 2048, 6, 252),
            (3, 7, 6, 12),
            (64, 100, 1, 9),
        ] {
            let ranges = Mutex::new(Vec::new());
            spread(&Several(threads), count, unit, most, |range| {
                assert!(range.len() <= most && !range.is_empty());
                ranges.lock().unwrap().extend(range);
            });
            let mut ranges = ranges.into_inner().unwrap();
            ranges.sort_unstable();
            assert!(
                ranges.into_iter().eq(0..count),
                "{threads} {count} {unit} {most}"
            );
        }
    }
}
