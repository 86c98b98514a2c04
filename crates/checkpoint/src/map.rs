//! Read-only memory maps.
#![allow(unsafe_code)] // a map of a file cannot be made without; see `MappedFile::open`

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;

use memmap2::UncheckedAdvice;

use crate::digest::FileState;

/// The bytes of a file, mapped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: memmap2::Mmap,
    state: FileState,
}

impl MappedFile {
    /// Maps the whole of a file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let state = FileState::of(&file.metadata()?);
        // SAFETY: the map is read-only and private to this process. Another process that
        // truncates the file while it is mapped ends this one with SIGBUS, and one that writes
        // to it changes what is read; checkpoints are replaced, not written in place, and
        // `Checkpoint::check_unwritten` finds one that was.
        let map = unsafe { memmap2::Mmap::map(&file) }?;
        Ok(Self { map, state })
    }

    /// Lets pages that lie within these bytes leave memory until they are read again.
    pub(crate) fn release(&self, bytes: &Range<usize>) {
        const PAGE: usize = 4096;
        let start = bytes.start.next_multiple_of(PAGE);
        let end = bytes.end / PAGE * PAGE;
        if start < end {
            // SAFETY: the map is of a file and read-only, so a page that is dropped is read from
            // the file again and holds the same bytes.
            let result = unsafe {
                self.map
                    .unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start)
            };
            // Advice only: where it is not taken, the pages stay.
            drop(result);
        }
    }

    /// The state of the file when it was mapped.
    pub(crate) fn state(&self) -> FileState {
        self.state
    }
}

/// Opens a regular file. Asked before it is opened: opening a pipe would wait for its writer.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if path.metadata()?.is_file() {
        return File::open(path);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is not a regular file",
    ))
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
