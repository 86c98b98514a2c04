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
        let mut file = File::open(path)?;
        let key = key(&file.metadata()?);
        let entry = self.dir.join(&key);
        if let Some(digest) = fs::read_to_string(&entry)
            .ok()
            .filter(|text| is_digest(text))
        {
            return Ok(digest);
        }
        let digest = hash(&mut file)?;
        // A file that changed while it was read has another key by now; its digest is of no state.
        if key == self::key(&file.metadata()?) {
            // A full disk costs the next caller time. It is no fault of the file.
            let _ = self.store(&entry, &digest);
        }
        Ok(digest)
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

fn key(metadata: &Metadata) -> String {
    format!(
        "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
