//! The state directory, used by one `assay up` at a time.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A locked state directory.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    /// The kernel releases it in whatever way this process ends.
    _lock: File,
}

impl StateDirectory {
    /// Creates the directory if need be and locks it.
    pub(super) fn lock(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
        // Children and PostgreSQL need a path that does not depend on the working directory.
        let path =
            fs::canonicalize(path).with_context(|| format!("cannot resolve {}", path.display()))?;
        let file = path.join("up.lock");
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&file)
            .with_context(|| format!("cannot open {}", file.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                lock.read_to_string(&mut pid)
                    .context("cannot read the pid in the lock file")?;
                bail!(
                    "another `assay up` (pid {}) uses {}; stop it, or give this one its own \
                     --state-dir",
                    pid.trim(),
                    path.display()
                );
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", file.display()));
            }
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_user_is_refused_with_the_pid_of_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/state");
        let first = StateDirectory::lock(&path).unwrap();
        let error = StateDirectory::lock(&path).unwrap_err().to_string();
        assert!(
            error.contains(&format!("(pid {})", std::process::id())),
            "{error}"
        );
        drop(first);
        StateDirectory::lock(&path).unwrap();
    }
}
