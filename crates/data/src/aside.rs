//! Files that are written aside and renamed when they are complete.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

/// What the names of files begin with that are not complete.
const UNFINISHED: &str = ".unfinished-";
/// After this long without a write, whoever wrote an unfinished file is taken to be gone.
const ABANDONED_AFTER: Duration = Duration::from_hours(24);

/// Begins a file in `dir`.
pub(crate) fn create(dir: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(dir)
}

/// Removes what killed processes left half written, which nothing else would.
pub(crate) fn remove_abandoned(dir: &Path) -> io::Result<()> {
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
        remove_abandoned(dir.path()).unwrap();
        assert!(!dir.path().join(".unfinished-a").exists());
        assert!(dir.path().join(".unfinished-b").exists());
        assert!(dir.path().join("c.tokens").exists());
        drop(create(dir.path()).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
