//! Uploaded datasets: names in the ledger, bytes in files named by their digest.
//!
//! A file is removed under the lock under which names are given, and only if nothing needs it. An
//! upload keeps its bytes open until it has its name, and puts the file back if the same bytes were
//! removed under another name in between. Whatever a kill leaves behind, [`Files::sweep`] removes.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use assay_api::ErrorCode;
use assay_data::{StoredUpload, UploadError, Uploads};
use assay_store::{ProjectStore, PutUpload, Store, UploadFiles};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::receive::SILENCE;

/// A file that was written this lately may be of an upload that is about to be named.
const RECENT: Duration = Duration::from_mins(10);

/// Uploads at a time. Each holds a thread while its bytes come in, and all blocking work shares
/// some hundreds of those.
const AT_A_TIME: usize = 64;

/// The files of uploads.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    uploads: Uploads,
    dir: PathBuf,
    turns: Arc<Semaphore>,
}

/// Bytes that are stored and have no name yet.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) upload: StoredUpload,
    /// The file, which can be read even after it was removed.
    file: File,
}

impl Files {
    /// The uploads in `dir`, which is created if need be.
    ///
    /// # Errors
    /// The directory cannot be created or read.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            uploads: Uploads::open(dir)?,
            dir: std::path::absolute(dir)?,
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
        })
    }

    pub(crate) fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// Whether the disk has room for an upload of this length.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn has_room(&self, length: u64) -> Result<(), ApiError> {
        // A file system that does not tell is left to say so when it is written to.
        let Ok(room) = room(&self.dir) else {
            return Ok(());
        };
        if length <= room {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorCode::StorageFull,
            format!(
                "the upload has {length} bytes and the server's disk room for {room}; {MAKE_ROOM}"
            ),
        ))
    }

    /// Waits for the turn of an upload, which lasts until it is dropped.
    ///
    /// # Errors
    /// Too many others take too long.
    pub(crate) async fn turn(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        match timeout(SILENCE, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(turn) => Ok(turn.expect("the semaphore is never closed")),
            Err(_) => Err(ApiError::new(
                ErrorCode::Unavailable,
                format!("{AT_A_TIME} other uploads are under way; send it again later"),
            )),
        }
    }

    /// Stores what `content` has. Blocks.
    ///
    /// # Errors
    /// It is longer than `limit` or breaks off, or the disk is full; nothing is stored then.
    pub(crate) fn store(&self, content: impl Read, limit: u64) -> Result<Stored, UploadError> {
        let (upload, file) = self.uploads.store_open(content, limit)?;
        Ok(Stored { upload, file })
    }

    /// Gives a name to stored bytes.
    ///
    /// # Errors
    /// The ledger fails.
    pub(crate) async fn name(
        &self,
        ledger: &ProjectStore,
        name: &str,
        stored: Stored,
    ) -> Result<PutUpload, ApiError> {
        let Stored { upload, mut file } = stored;
        let put = ledger
            .put_upload(name, &upload.digest, upload.bytes)
            .await?;
        // While the name stands for it, nobody removes the file, but somebody may just have.
        let uploads = self.uploads.clone();
        let digest = upload.digest.clone();
        let put_back = move || -> Result<bool, UploadError> {
            let path = uploads.path(&digest);
            if path.is_some_and(|path| path.is_file()) {
                return Ok(false);
            }
            file.rewind().map_err(UploadError::Io)?;
            uploads.store(file, u64::MAX)?;
            Ok(true)
        };
        let was_gone = tokio::task::spawn_blocking(put_back)
            .await?
            .map_err(refusal)?;
        if was_gone {
            // It may have been gone since the name stands for other bytes again.
            self.remove_unused(&ledger.upload_files(), &upload.digest)
                .await;
        }
        if let Some(old) = &put.replaced {
            self.remove_unused(&ledger.upload_files(), old).await;
        }
        Ok(put)
    }

    /// Removes the file of a digest if neither a name nor a job that has not ended needs it. A
    /// failure is logged and left to the sweep: what the caller asked for is done.
    pub(crate) async fn remove_unused(&self, files: &UploadFiles, digest: &str) {
        let remove = || self.uploads.remove(digest);
        let removed = match files.if_digest_unused(digest, remove).await {
            Ok(None) => return,
            Ok(Some(removed)) => removed.map_err(anyhow::Error::from),
            Err(error) => Err(error.into()),
        };
        match removed {
            Ok(()) => tracing::info!(digest, "removed the file of an upload"),
            Err(error) => tracing::warn!(digest, %error, "cannot remove the file of an upload"),
        }
    }

    /// Removes every file that nothing needs: those that only jobs needed that have ended since,
    /// and those of uploads that were cut off before they had a name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) async fn sweep(&self, store: &Store) -> anyhow::Result<()> {
        let dir = self.dir.clone();
        for digest in tokio::task::spawn_blocking(move || settled(&dir)).await?? {
            self.remove_unused(&store.upload_files(), &digest).await;
        }
        Ok(())
    }
}

/// What to do about a full disk.
pub(crate) const MAKE_ROOM: &str = "make room in the state directory, or delete uploads that are \
                                    no longer needed";

/// Why an upload was not stored, for its sender.
pub(crate) fn refusal(error: UploadError) -> ApiError {
    match error {
        UploadError::TooLarge { .. } => {
            ApiError::new(ErrorCode::PayloadTooLarge, error.to_string())
        }
        UploadError::BrokenOff(_) => {
            ApiError::of_field(ErrorCode::InvalidRequest, "body", error.to_string())
        }
        UploadError::Io(error) => on_disk("the upload", &error),
    }
}

/// Why `what` cannot be written to the state directory.
pub(crate) fn on_disk(what: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ApiError::new(
            ErrorCode::StorageFull,
            format!("the server's disk has no room for {what}; {MAKE_ROOM}"),
        ),
        _ => ApiError::Internal(format!("cannot write {what}: {error}")),
    }
}

/// Bytes that this program may still write below `dir`.
pub(crate) fn room(dir: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(dir)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The digests of the files that are no longer being written or named.
fn settled(dir: &Path) -> io::Result<Vec<String>> {
    let mut digests = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.len() != 64 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        // A file that is gone by now is fine.
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let age = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        if age.is_ok_and(|age| age > RECENT) {
            digests.push(format!("sha256:{name}"));
        }
    }
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settled_files_of_uploads_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - RECENT - Duration::from_mins(1);
        let (old, new) = ("a".repeat(64), "b".repeat(64));
        for (name, is_old) in [(&*old, true), (&*new, false), (".unfinished-x", true)] {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            if is_old {
                file.set_modified(long_ago).unwrap();
            }
        }
        assert_eq!(settled(dir.path()).unwrap(), [format!("sha256:{old}")]);
    }

    #[test]
    fn a_full_disk_is_told_from_other_failures() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let ApiError::Problem(problem) = refusal(UploadError::Io(full)) else {
            panic!()
        };
        assert_eq!(
            (problem.code, problem.status),
            (ErrorCode::StorageFull, 507)
        );
        let other = io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(matches!(
            refusal(UploadError::Io(other)),
            ApiError::Internal(_)
        ));
    }

    #[test]
    fn an_upload_that_cannot_fit_is_refused_before_it_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(&dir.path().join("uploads")).unwrap();
        assert!(files.has_room(1).is_ok());
        assert!(files.has_room(u64::MAX).is_err());
    }
}
