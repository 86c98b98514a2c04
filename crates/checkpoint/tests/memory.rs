//! How much memory it takes to open a GGUF file, whatever its header claims.
#![allow(unsafe_code)] // an allocator that counts cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;

use assay_checkpoint::Checkpoint;

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

/// The most that a call holds at once.
fn most(call: impl FnOnce()) -> usize {
    HELD.with(|held| held.set((0, 0)));
    call();
    HELD.with(|held| held.get().1)
}

fn header(tensors: u64, values: u64) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(values.to_le_bytes());
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// An array under a key, with elements of a type; the number is what it claims.
fn array(bytes: &mut Vec<u8>, key: &str, kind: u32, count: u64) {
    text(bytes, key);
    bytes.extend(9_u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(count.to_le_bytes());
}

/// Files of the smallest things a header can have, which are the largest in memory for their size.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    // One more than a vector that grows by doubling has room for.
    let count = 65_537_u64;
    let mut values = header(0, count);
    for index in 0..count {
        text(&mut values, &format!("{index:x}"));
        values.extend([0, 0, 0, 0, 7]);
    }
    let mut tensors = header(count, 0);
    let mut unsupported = header(count, 0);
    for index in 0..count {
        for (bytes, kind) in [(&mut tensors, 0_u32), (&mut unsupported, u32::MAX)] {
            text(bytes, &format!("{index:x}"));
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(0_u64.to_le_bytes());
        }
    }
    let mut texts = header(0, 1);
    array(&mut texts, "tokenizer.ggml.tokens", 8, count);
    texts.resize(texts.len() + 8 * 65_537, 0);
    let mut cases = vec![
        ("values", values),
        ("tensors", tensors),
        ("unsupported tensors", unsupported),
        ("texts", texts),
    ];
    for claimed in [u64::MAX, 1 << 40] {
        let mut bytes = header(claimed, 0);
        bytes.resize(1 << 20, 0);
        cases.push(("a claimed number of tensors", bytes));
        let mut bytes = header(0, claimed);
        bytes.resize(1 << 20, 0);
        cases.push(("a claimed number of values", bytes));
        for kind in [0, 8, 9] {
            let mut bytes = header(0, 1);
            array(&mut bytes, "x", kind, claimed);
            bytes.resize(1 << 20, 0);
            cases.push(("a claimed number of elements", bytes));
        }
        let mut bytes = header(0, 1);
        text(&mut bytes, "x");
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(claimed.to_le_bytes());
        bytes.resize(1 << 20, 0);
        cases.push(("a claimed length", bytes));
    }
    cases
}

/// The factor that gguf/header.rs states.
const FACTOR: usize = 16;

#[test]
fn headers_take_no_more_than_a_multiple_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for (name, bytes) in hostile() {
        fs::write(&path, &bytes).unwrap();
        let used = most(|| assert!(Checkpoint::open(&path).is_err()));
        assert!(
            used <= FACTOR * bytes.len(),
            "{name}: {used} bytes for a file of {}",
            bytes.len()
        );
    }
}
