//! Where uploaded datasets are kept.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::aside;
use crate::store::digest_text;

/// Bytes that are copied at once.
const CHUNK: usize = 1 << 20;

/// A directory of files that are named by the digests of their bytes, so that equal uploads are
/// one file. Several processes may use one directory.
#[derive(Clone, Debug)]
pub struct Uploads(PathBuf);

/// An upload that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUpload {
    /// `sha256:` of its bytes.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
}

/// Why an upload is not stored.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// It has more bytes than are allowed.
    #[error("the upload has more than the {limit} bytes that are allowed; compress it, or cut it")]
    TooLarge {
        /// The most there may be.
        limit: u64,
    },
    /// The sender's stream ends in an error.
    #[error("the upload broke off: {0}; send it again")]
    BrokenOff(#[source] io::Error),
    /// The directory refuses it.
    #[error("the upload cannot be stored: {0}; check the directory of uploads and its room")]
    Io(#[source] io::Error),
}

impl Uploads {
    /// The uploads in `dir`, which is created if need be.
    ///
    /// # Errors
    /// The directory cannot be created or read.
    pub fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        fs::read_dir(dir)?;
        Ok(Self(std::path::absolute(dir)?))
    }

    /// Where the upload with this digest is, if it is there. None if it is not a digest.
    pub fn path(&self, digest: &str) -> Option<PathBuf> {
        let hex = digest.strip_prefix("sha256:")?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (hex.len() == 64 && hex.bytes().all(is_hex)).then(|| self.0.join(hex))
    }

    /// Begins an upload of at most `limit` bytes.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn begin(&self, limit: u64) -> Result<UploadWriter, UploadError> {
        aside::remove_abandoned(&self.0).map_err(UploadError::Io)?;
        Ok(UploadWriter {
            file: aside::create(&self.0).map_err(UploadError::Io)?,
            dir: self.0.clone(),
            hash: Sha256::new(),
            bytes: 0,
            limit,
        })
    }

    /// Stores what `content` has, at most `limit` bytes; the same bytes twice are stored once.
    ///
    /// # Errors
    /// See [`UploadError`]; nothing is stored then.
    pub fn store(&self, content: impl Read, limit: u64) -> Result<StoredUpload, UploadError> {
        self.store_open(content, limit).map(|(stored, _)| stored)
    }

    /// As [`Uploads::store`], with the file open: it can be read even after another has removed it.
    ///
    /// # Errors
    /// See [`UploadError`]; nothing is stored then.
    pub fn store_open(
        &self,
        mut content: impl Read,
        limit: u64,
    ) -> Result<(StoredUpload, fs::File), UploadError> {
        let mut writer = self.begin(limit)?;
        let mut buffer = vec![0; CHUNK];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => return writer.finish(),
                Ok(read) => writer.write(&buffer[..read])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(UploadError::BrokenOff(error)),
            }
        }
    }

    /// Removes an upload; one that is gone is fine. Whoever has it open reads on.
    ///
    /// # Errors
    /// The directory refuses.
    pub fn remove(&self, digest: &str) -> io::Result<()> {
        match self.path(digest).map_or(Ok(()), fs::remove_file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// An upload that comes in. Dropped before [`UploadWriter::finish`], nothing remains of it.
#[derive(Debug)]
pub struct UploadWriter {
    file: NamedTempFile,
    dir: PathBuf,
    hash: Sha256,
    bytes: u64,
    limit: u64,
}

impl UploadWriter {
    /// Adds bytes.
    ///
    /// # Errors
    /// There are more than allowed, or the disk is full.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), UploadError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.limit {
            return Err(UploadError::TooLarge { limit: self.limit });
        }
        self.hash.update(bytes);
        self.file.write_all(bytes).map_err(UploadError::Io)
    }

    /// Puts the upload in place, on disk. The file stays open.
    ///
    /// # Errors
    /// The directory refuses.
    pub fn finish(self) -> Result<(StoredUpload, fs::File), UploadError> {
        let digest = digest_text(&self.hash.finalize());
        let path = self.dir.join(digest.trim_start_matches("sha256:"));
        let put = || -> io::Result<fs::File> {
            // Workers may run as another user.
            let readable = fs::Permissions::from_mode(0o644);
            self.file.as_file().set_permissions(readable)?;
            self.file.as_file().sync_all()?;
            let file = self.file.persist(&path)?;
            // A name that is answered for must outlive a crash too.
            fs::File::open(&self.dir)?.sync_all()?;
            Ok(file)
        };
        let file = put().map_err(UploadError::Io)?;
        let stored = StoredUpload {
            digest,
            bytes: self.bytes,
        };
        Ok((stored, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Seek;

    fn uploads() -> (tempfile::TempDir, Uploads) {
        let dir = tempfile::tempdir().unwrap();
        let uploads = Uploads::open(&dir.path().join("a/b")).unwrap();
        (dir, uploads)
    }

    fn stored(uploads: &Uploads) -> usize {
        fs::read_dir(&uploads.0).unwrap().count()
    }

    #[test]
    fn equal_bytes_are_one_file_named_by_its_digest() {
        let (_dir, uploads) = uploads();
        let first = uploads.store(&b"abc"[..], 3).unwrap();
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(
            (first.digest.as_str(), first.bytes),
            (&*format!("sha256:{hex}"), 3)
        );
        assert_eq!(uploads.store(&b"abc"[..], 10).unwrap(), first);
        assert_eq!(stored(&uploads), 1);
        let path = uploads.path(&first.digest).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o644
        );
        let (again, mut open) = uploads.store_open(&b"abc"[..], 3).unwrap();
        uploads.remove(&first.digest).unwrap();
        uploads.remove(&first.digest).unwrap();
        assert_eq!(stored(&uploads), 0);
        let mut kept = String::new();
        open.rewind().unwrap();
        open.read_to_string(&mut kept).unwrap();
        assert_eq!((again, &*kept), (first, "abc"));
    }

    #[test]
    fn a_refused_upload_leaves_nothing() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let (_dir, uploads) = uploads();
        let error = uploads.store(&b"abcd"[..], 3).unwrap_err();
        assert!(
            matches!(error, UploadError::TooLarge { limit: 3 }),
            "{error:?}"
        );
        let error = uploads.store(b"ab".chain(Broken), 3).unwrap_err();
        assert!(matches!(error, UploadError::BrokenOff(_)), "{error:?}");
        drop(uploads.begin(3).unwrap());
        assert_eq!(stored(&uploads), 0);
    }

    #[test]
    fn only_digests_are_paths() {
        let (_dir, uploads) = uploads();
        let hex = "a".repeat(64);
        assert!(uploads.path(&format!("sha256:{hex}")).is_some());
        for bad in [
            &hex,
            "sha256:",
            "sha256:../../etc/passwd",
            &format!("sha256:{hex}a"),
        ] {
            assert!(uploads.path(bad).is_none(), "{bad}");
        }
        assert!(
            uploads
                .path(&format!("sha256:{}", hex.to_uppercase()))
                .is_none()
        );
    }
}
