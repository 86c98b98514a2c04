//! Memory for what a task computes on the way.

use std::cell::RefCell;

/// Sixteen numbers in one line of the cache: vectors of them never lie in two.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; 16]);

const LINE: usize = 16;

thread_local! {
    /// Kept from task to task: the system would map fresh memory page by page for each.
    static SPACE: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `task` with as many parts of memory as lengths are given, in numbers of four bytes. They
/// begin with a line of the cache and hold any numbers. Tasks do not nest.
pub(crate) fn with<const PARTS: usize>(lens: [usize; PARTS], task: impl FnOnce([*mut f32; PARTS])) {
    let lens = lens.map(|len| len.div_ceil(LINE));
    SPACE.with_borrow_mut(|space| {
        let needed: usize = lens.iter().sum();
        if space.len() < needed {
            space.resize(needed, Line([0.0; LINE]));
        }
        let mut rest = space.as_mut_slice();
        task(lens.map(|len| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(len);
            rest = behind;
            part.as_mut_ptr().cast()
        }));
    });
}
