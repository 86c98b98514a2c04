//! Read-only memory maps.
#![allow(unsafe_code)] // a map of a file cannot be made without; see `MappedFile::open`

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file, mapped.
#[derive(Debug)]
pub(crate) struct MappedFile(memmap2::Mmap);

impl MappedFile {
    /// Maps the whole of a file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // Mapping a directory or a device fails with an error that does not say so.
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        // SAFETY: the map is read-only and private to this process. Another process that
        // truncates the file while it is mapped ends this one with SIGBUS, and one that writes
        // to it changes what is read; checkpoints are replaced, not written in place, and the
        // digest that is pinned with a job shows a change.
        unsafe { memmap2::Mmap::map(&file) }.map(Self)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
