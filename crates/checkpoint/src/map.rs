//! Read-only memory maps.
#![allow(unsafe_code)] // a map of a file cannot be made without; see `MappedFile::open`

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

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
