//! The read-only memory map of a token file.
#![allow(unsafe_code)] // mapping a file, and reading its bytes as ids in place

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

#[cfg(target_endian = "big")]
compile_error!("token files are little endian and are read in place");

/// The bytes of a token file.
#[derive(Debug)]
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps the whole of a file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is read-only. Token files are written aside and renamed, never in
        // place, so nothing of this program changes or shortens one that is mapped; whoever else
        // truncates it ends this process with SIGBUS.
        unsafe { memmap2::Mmap::map(&file) }.map(Self)
    }

    /// The 32-bit numbers at `range`, in units of four bytes from the start of the file.
    pub(crate) fn numbers(&self, range: Range<usize>) -> &[u32] {
        let bytes = &self.0[4 * range.start..4 * range.end];
        // SAFETY: every pattern of 32 bits is a number.
        let (before, numbers, after) = unsafe { bytes.align_to::<u32>() };
        // The map starts on a page and the range on a multiple of four.
        assert!(before.is_empty() && after.is_empty(), "ids are aligned");
        numbers
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
