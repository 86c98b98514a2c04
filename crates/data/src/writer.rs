//! Writing a token file.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::store::{ID, MAGIC};

/// What the names of files begin with that are not complete.
const UNFINISHED: &str = ".unfinished-";
/// After this long without a write, whoever wrote an unfinished file is taken to be gone.
const ABANDONED_AFTER: Duration = Duration::from_hours(24);

/// Writes a token file aside and puts it in place when it is complete.
pub(crate) struct StoreWriter {
    file: BufWriter<NamedTempFile>,
    checksum: Sha256,
    tokens_digest: Sha256,
    records: Vec<[u64; 3]>,
}

impl StoreWriter {
    /// Starts a file in `dir`, which is created if need be.
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        remove_abandoned(dir)?;
        let file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            .tempfile_in(dir)?;
        Ok(Self {
            file: BufWriter::new(file),
            checksum: Sha256::new(),
            tokens_digest: Sha256::new(),
            records: Vec::new(),
        })
    }

    /// Adds a document.
    pub(crate) fn push(&mut self, ids: &[u32], bytes: u64, words: u64) -> io::Result<()> {
        let encoded: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.tokens_digest.update((ids.len() as u64).to_le_bytes());
        self.tokens_digest.update(&encoded);
        self.records
            .push([self.tokens() + ids.len() as u64, bytes, words]);
        self.put(&encoded)
    }

    /// Documents so far.
    pub(crate) fn documents(&self) -> u64 {
        self.records.len() as u64
    }

    /// Tokens so far.
    pub(crate) fn tokens(&self) -> u64 {
        self.records.last().map_or(0, |record| record[0])
    }

    /// Completes the file and renames it to `path`. Whoever else builds the same file renames an
    /// equal one, so the order does not matter.
    pub(crate) fn finish(mut self, path: &Path) -> io::Result<()> {
        let (documents, tokens) = (self.documents(), self.tokens());
        if tokens % 2 == 1 {
            self.put(&[0; ID])?;
        }
        let records: Vec<u8> = self
            .records
            .iter()
            .flatten()
            .flat_map(|number| number.to_le_bytes())
            .collect();
        self.put(&records)?;
        self.put(MAGIC)?;
        self.put(&documents.to_le_bytes())?;
        self.put(&tokens.to_le_bytes())?;
        let tokens_digest = self.tokens_digest.clone().finalize();
        self.put(&tokens_digest)?;
        let checksum = self.checksum.clone().finalize();
        self.put(&checksum)?;
        self.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .persist(path)?;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.file.write_all(bytes)
    }
}

/// Removes what killed processes left half written, which nothing else would.
fn remove_abandoned(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            continue;
        }
        // Its owner may finish or remove it, and others sweep too: a file that is gone is fine.
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        let silence = written.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        if silence.is_ok_and(|silence| silence > ABANDONED_AFTER) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_abandoned_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - ABANDONED_AFTER - Duration::from_mins(1);
        for (name, old) in [
            (".unfinished-a", true),
            (".unfinished-b", false),
            ("c.tokens", true),
        ] {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            if old {
                file.set_modified(long_ago).unwrap();
            }
        }
        let writer = StoreWriter::new(dir.path()).unwrap();
        assert!(!dir.path().join(".unfinished-a").exists());
        assert!(dir.path().join(".unfinished-b").exists());
        assert!(dir.path().join("c.tokens").exists());
        drop(writer);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
