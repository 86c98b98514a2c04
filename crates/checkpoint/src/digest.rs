//! SHA-256 of files, remembered between runs.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Remembers the SHA-256 of files below a directory, by what the file system says of them:
/// device, inode, size, and times of modification and change in nanoseconds.
///
/// Several processes may use one directory: entries are written aside and renamed.
#[derive(Clone, Debug)]
pub struct DigestCache {
    dir: PathBuf,
}

impl DigestCache {
    /// A cache in `dir`, which is created when the first digest is stored.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// SHA-256 of the file's bytes in hexadecimal.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn file(&self, path: &Path) -> io::Result<String> {
        Ok(self.file_in_state(path)?.0)
    }

    /// SHA-256 of the file, and the state in which it was opened.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn file_in_state(&self, path: &Path) -> io::Result<(String, FileState)> {
        let mut file = File::open(path)?;
        let state = FileState::of(&file.metadata()?);
        let key = state.key();
        let entry = self.dir.join(&key);
        if let Some(digest) = fs::read_to_string(&entry)
            .ok()
            .filter(|text| is_digest(text))
        {
            return Ok((digest, state));
        }
        let digest = hash(&mut file)?;
        let after = FileState::of(&file.metadata()?);
        // A file that changed while it was read is in another state by now, and its digest is of
        // none.
        if after == state {
            // A full disk costs the next caller time. It is no fault of the file.
            let _ = self.store(&entry, &digest);
        }
        Ok((digest, after))
    }

    fn store(&self, entry: &Path, digest: &str) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let mut aside = tempfile::NamedTempFile::new_in(&self.dir)?;
        aside.write_all(digest.as_bytes())?;
        aside.persist(entry)?;
        Ok(())
    }
}

/// Lower-case hexadecimal SHA-256 of what `update` feeds it.
pub(crate) fn sha256(update: impl FnOnce(&mut Sha256)) -> String {
    let mut hasher = Sha256::new();
    update(&mut hasher);
    hex(&hasher.finalize())
}

fn hash(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        })
}

/// What the file system says of a file's content. Every write changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    /// The state that `metadata` tells of.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether both are states of one file, and not of two that had one name after the other.
    pub(crate) fn is_of_same_file(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether the file was not written in between. A link or a change of permissions, which the
    /// time of change shows too, leaves the content as it was.
    pub(crate) fn has_same_content(self, other: Self) -> bool {
        let written = |state: Self| (state.size, state.modified);
        self.is_of_same_file(other) && written(self) == written(other)
    }

    fn key(self) -> String {
        let Self {
            device,
            inode,
            size,
            modified: (seconds, nanoseconds),
            changed: (change, nanochange),
        } = self;
        format!(
            "{device:x}-{inode:x}-{size:x}-{seconds:x}.{nanoseconds:x}-{change:x}.{nanochange:x}"
        )
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
