//! Splits: micro-batches cut into parts that fit in memory.
//!
//! A split of depth d cuts each micro-batch into at most 2^d parts of whole windows. The depth
//! is recorded on the shard before anything is computed by it, so that whoever computes the
//! shard again does it the same way: bits are promised for equal splits.

use assay_scoring::{MicroBatch, Window};

/// The parts of a micro-batch at a split depth, in order. Depth 0 is the micro-batch itself.
pub(crate) fn parts(micro_batch: &MicroBatch, depth: u32) -> impl Iterator<Item = &[Window]> {
    let windows = &micro_batch.0;
    let parts = 1_usize.checked_shl(depth).unwrap_or(usize::MAX);
    windows.chunks(windows.len().div_ceil(parts).max(1))
}

/// The first depth at which every part is a single window: deeper splits change nothing.
pub(crate) fn deepest(micro_batches: &[MicroBatch]) -> u32 {
    let most = micro_batches.iter().map(|m| m.0.len()).max().unwrap_or(0);
    most.max(1).next_power_of_two().ilog2()
}

/// The least depth from `recorded` on at which `fits` takes every part. None if a single window
/// is too large.
pub(crate) fn fitting(
    micro_batches: &[MicroBatch],
    recorded: u32,
    fits: impl Fn(&[Window]) -> bool,
) -> Option<u32> {
    let at = |depth| {
        micro_batches
            .iter()
            .all(|micro_batch| parts(micro_batch, depth).all(&fits))
    };
    (recorded..=deepest(micro_batches).max(recorded)).find(|&depth| at(depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micro_batch(windows: u32) -> MicroBatch {
        let window = |document| Window {
            document,
            start: -1,
            len: 4,
            from: 0,
            to: 4,
        };
        MicroBatch((0..windows).map(window).collect())
    }

    fn sizes(windows: u32, depth: u32) -> Vec<usize> {
        parts(&micro_batch(windows), depth)
            .map(<[_]>::len)
            .collect()
    }

    #[test]
    fn parts_halve_with_depth_and_keep_all_windows_in_order() {
        assert_eq!(sizes(5, 0), [5]);
        assert_eq!(sizes(5, 1), [3, 2]);
        assert_eq!(sizes(5, 2), [2, 2, 1]);
        assert_eq!(sizes(5, 3), [1; 5]);
        assert_eq!(sizes(5, 200), [1; 5]);
        let whole = micro_batch(7);
        for depth in 0..5 {
            let joined: Vec<Window> = parts(&whole, depth).flatten().copied().collect();
            assert_eq!(joined, whole.0);
        }
    }

    #[test]
    fn the_deepest_split_is_the_first_of_single_windows() {
        for (windows, depth) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)] {
            assert_eq!(deepest(&[micro_batch(1), micro_batch(windows)]), depth);
            assert!(sizes(windows, depth).iter().all(|&n| n == 1));
            assert!(depth == 0 || sizes(windows, depth - 1)[0] > 1);
        }
        assert_eq!(deepest(&[]), 0);
    }

    #[test]
    fn the_least_depth_that_fits_is_taken_and_never_less_than_recorded() {
        let batches = [micro_batch(2), micro_batch(8)];
        let at_most = |n: usize| move |part: &[Window]| part.len() <= n;
        assert_eq!(fitting(&batches, 0, at_most(8)), Some(0));
        assert_eq!(fitting(&batches, 0, at_most(4)), Some(1));
        assert_eq!(fitting(&batches, 2, at_most(4)), Some(2));
        assert_eq!(fitting(&batches, 0, at_most(1)), Some(3));
        assert_eq!(fitting(&batches, 0, at_most(0)), None);
        assert_eq!(fitting(&batches, 9, at_most(1)), Some(9));
    }
}
