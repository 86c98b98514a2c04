//! A file that has not come whole.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::{Digest, HubError};

/// What has come of a file. The lock is held as long as anything may still write to it: a write
/// that was begun ends after the future that began it is dropped.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    _lock: File,
}

impl Partial {
    pub(crate) fn open(path: PathBuf, lock: File) -> Result<Self, HubError> {
        let file = File::options()
            .create(true)
            .read(true)
            .append(true)
            .open(&path)
            .map_err(|source| HubError::io(&path, source))?;
        Ok(Self {
            path,
            file,
            _lock: lock,
        })
    }

    pub(crate) fn length(&self) -> Result<u64, HubError> {
        let metadata = self.file.metadata();
        Ok(metadata.map_err(|source| self.error(source))?.len())
    }

    pub(crate) fn begin_anew(&self) -> Result<(), HubError> {
        self.file.set_len(0).map_err(|source| self.error(source))
    }

    /// Appends on a thread that may wait for the disk. `missing` is for the error's text.
    pub(crate) async fn append(
        self: &Arc<Self>,
        bytes: Bytes,
        missing: u64,
    ) -> Result<(), HubError> {
        let partial = self.clone();
        tokio::task::spawn_blocking(move || (&partial.file).write_all(&bytes))
            .await
            .expect("writing does not panic")
            .map_err(|source| match self.error(source) {
                HubError::Full { path, .. } => HubError::Full {
                    path,
                    needed: missing,
                },
                error => error,
            })
    }

    /// The digest of what has come, read back and safely on the disk.
    pub(crate) async fn digest(
        self: &Arc<Self>,
        digest: &Digest,
        size: u64,
        stop: &CancellationToken,
    ) -> Result<String, HubError> {
        let (partial, digest, stop) = (self.clone(), digest.clone(), stop.clone());
        tokio::task::spawn_blocking(move || {
            (&partial.file).rewind()?;
            let found = digest.of_file(&partial.file, size, &stop)?;
            partial.file.sync_all()?;
            Ok(found)
        })
        .await
        .expect("hashing does not panic")
        .map_err(|source: io::Error| match source.kind() {
            io::ErrorKind::Interrupted => HubError::Cancelled,
            _ => self.error(source),
        })
    }

    pub(crate) fn rename(&self, to: &Path) -> Result<(), HubError> {
        fs::rename(&self.path, to).map_err(|source| self.error(source))
    }

    pub(crate) fn remove(&self) -> Result<(), HubError> {
        fs::remove_file(&self.path).map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> HubError {
        HubError::io(&self.path, source)
    }
}
