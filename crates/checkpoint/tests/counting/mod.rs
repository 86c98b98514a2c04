//! An allocator that counts, for tests of how much memory a file can take.
#![allow(unsafe_code)] // an allocator that counts cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not given back, and the most that was.
    static HELD: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.with(|held| {
            let (now, most) = held.get();
            let now = now.wrapping_add(layout.size());
            held.set((now, most.max(now)));
        });
        // SAFETY: the caller keeps to the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.with(|held| {
            let (now, most) = held.get();
            held.set((now.saturating_sub(layout.size()), most));
        });
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that this thread holds at once while it makes the call.
pub(crate) fn most(call: impl FnOnce()) -> usize {
    HELD.with(|held| held.set((0, 0)));
    call();
    HELD.with(|held| held.get().1)
}
