//! The cache's directories, laid out as other programs for the hub lay out theirs:
//!
//! ```text
//! models--org--name/blobs/DIGEST                     a file's bytes
//! models--org--name/blobs/DIGEST.incomplete          what has come of them
//! models--org--name/refs/main                        the commit that `main` was last seen at
//! models--org--name/snapshots/COMMIT/config.json     a link to the blob
//! models--org--name/assay/COMMIT.json                the list of files
//! .locks/models--org--name/DIGEST.lock               held by whoever writes the blob
//! ```
//!
//! The list is Assay's own; it is what makes a commit known without the hub. Whatever appears
//! under its name is whole: it is written aside and renamed.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Digest, HubError, Kind, Reference, RemoteFile, Repository, Snapshot, snapshot};

/// How often a lock that another process holds is tried: waiting for it in the kernel could not
/// be cancelled.
const LOCK_POLL: Duration = Duration::from_millis(50);

/// A repository's part of the cache.
pub(crate) struct Cache {
    locks: PathBuf,
    root: PathBuf,
}

impl Cache {
    pub(crate) fn new(directory: &Path, repository: &Repository) -> Self {
        let kind = match repository.kind() {
            Kind::Model => "models",
            Kind::Dataset => "datasets",
        };
        let folder = format!("{kind}--{}", repository.name().replace('/', "--"));
        Self {
            locks: directory.join(".locks").join(&folder),
            root: directory.join(folder),
        }
    }

    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.hex())
    }

    pub(crate) fn incomplete(&self, digest: &Digest) -> PathBuf {
        self.root
            .join("blobs")
            .join(format!("{}.incomplete", digest.hex()))
    }

    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    fn reference(&self, revision: &str) -> PathBuf {
        self.root.join("refs").join(revision)
    }

    fn list(&self, commit: &str) -> PathBuf {
        self.root.join("assay").join(format!("{commit}.json"))
    }

    /// What is known of a revision without the hub: that of a commit never changes, that of a
    /// branch is what it was when the hub was last asked.
    pub(crate) fn known(&self, reference: &Reference) -> Result<Option<Snapshot>, HubError> {
        let revision = reference.revision();
        let commit = if snapshot::is_commit(revision) {
            Some(revision.to_owned())
        } else {
            read(&self.reference(revision))?
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .map(|text| text.trim().to_owned())
                .filter(|commit| snapshot::is_commit(commit))
        };
        let Some(commit) = commit else {
            return Ok(None);
        };
        // A list that cannot be read, of another version of this program, is as good as none.
        let snapshot = read(&self.list(&commit))?
            .and_then(|bytes| serde_json::from_slice::<Snapshot>(&bytes).ok());
        Ok(snapshot
            .filter(|known| known.commit == commit && known.repository == *reference.repository()))
    }

    /// Remembers what a revision is.
    pub(crate) fn remember(&self, revision: &str, snapshot: &Snapshot) -> Result<(), HubError> {
        let list = serde_json::to_vec(snapshot).expect("snapshots have no maps");
        write(&self.list(&snapshot.commit), &list)?;
        if snapshot::is_commit(revision) {
            return Ok(());
        }
        write(&self.reference(revision), snapshot.commit.as_bytes())
    }

    /// Whether a file's bytes are there. What comes under a blob's name has been checked by its
    /// digest; here its size is.
    pub(crate) fn has(&self, digest: &Digest, size: u64) -> bool {
        fs::metadata(self.blob(digest)).is_ok_and(|found| found.is_file() && found.len() == size)
    }

    /// Makes a snapshot's file a link to its blob.
    pub(crate) fn link(
        &self,
        commit: &str,
        file: &RemoteFile,
        digest: &Digest,
    ) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(&file.path);
        // Out of the directories of the path, the commit and `snapshots`.
        let up = "../".repeat(file.path.split('/').count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{}", digest.hex()));
        if fs::read_link(&path).is_ok_and(|found| found == target) {
            return Ok(());
        }
        let directory = parent(&path)?;
        let fails = |source| HubError::io(&path, source);
        // A link cannot be made over another, but renamed over it.
        tempfile::Builder::new()
            .make_in(directory, |aside| symlink(&target, aside))
            .map_err(fails)?
            .into_temp_path()
            .persist(&path)
            .map_err(|error| fails(error.error))
    }

    /// Waits until no other process writes a blob; the lock ends with the value, or the process.
    pub(crate) async fn lock(&self, digest: &Digest) -> Result<File, HubError> {
        let path = self.locks.join(format!("{}.lock", digest.hex()));
        parent(&path)?;
        parent(&self.blob(digest))?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|source| HubError::io(&path, source))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
                Err(TryLockError::Error(source)) => return Err(HubError::io(&path, source)),
            }
        }
    }

    /// Refuses early what the file system cannot hold. Where it does not say, writing will.
    pub(crate) fn check_space(&self, needed: u64) -> Result<(), HubError> {
        fs::create_dir_all(&self.root).map_err(|source| HubError::io(&self.root, source))?;
        let free = rustix::fs::statvfs(&self.root)
            .map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
        if needed > free {
            let path = self.root.clone();
            return Err(HubError::Full { path, needed });
        }
        Ok(())
    }
}

/// The bytes of a file, or nothing if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, HubError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        // `refs/a/b` where `refs/a` is a file.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(HubError::io(path, source)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let fails = |source| HubError::io(path, source);
    // Other users' programs may read what the umask lets them, as they may the blobs.
    let mut aside = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(parent(path)?)
        .map_err(fails)?;
    aside.write_all(bytes).map_err(fails)?;
    aside.persist(path).map_err(|error| fails(error.error))?;
    Ok(())
}

/// The directory of a file, made if it is not there.
fn parent(path: &Path) -> Result<&Path, HubError> {
    let directory = path.parent().expect("the cache's files have directories");
    fs::create_dir_all(directory).map_err(|source| HubError::io(directory, source))?;
    Ok(directory)
}
