//! Finds PostgreSQL's programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::PostgresError;

/// Where Debian and Ubuntu keep one folder per major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A folder with `initdb` and `postgres`.
#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Looks in `PG_BINDIR`, the folder that `pg_config` names, Debian's folders (newest first)
    /// and `PATH`, in this order. For a cluster that exists only its own major version will do.
    pub(crate) fn find(data: &Path) -> Result<Self, PostgresError> {
        let searched = candidates();
        let mut found = searched
            .iter()
            .filter(|directory| {
                ["initdb", "postgres"]
                    .iter()
                    .all(|p| directory.join(p).is_file())
            })
            .map(|directory| Self {
                directory: directory.clone(),
            })
            .peekable();
        if found.peek().is_none() {
            return Err(PostgresError::NotInstalled(searched));
        }
        let Ok(wanted) = fs::read_to_string(data.join("PG_VERSION")) else {
            return found.next().ok_or(PostgresError::NotInstalled(Vec::new()));
        };
        let wanted = wanted.trim();
        let mut versions = Vec::new();
        for binaries in found {
            let version = binaries.major_version();
            if version == wanted {
                return Ok(binaries);
            }
            versions.push(version);
        }
        versions.dedup();
        Err(PostgresError::OtherVersion {
            directory: data.to_owned(),
            wanted: wanted.to_owned(),
            found: versions.join(", "),
        })
    }

    /// Path of one of the programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn major_version(&self) -> String {
        let output = Command::new(self.program("postgres"))
            .arg("--version")
            .output();
        output.map_or_else(
            |_| String::new(),
            |o| major(&String::from_utf8_lossy(&o.stdout)),
        )
    }
}

/// The major version in a line such as `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`.
fn major(line: &str) -> String {
    let number = line.split_whitespace().nth(2).unwrap_or_default();
    number.chars().take_while(char::is_ascii_digit).collect()
}

fn candidates() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    // An explicit choice is the only candidate, so that a typing error is not hidden.
    if let Some(directory) = std::env::var_os("PG_BINDIR") {
        return vec![directory.into()];
    }
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        directories.extend((!directory.is_empty()).then(|| directory.into()));
    }
    let mut versions: Vec<PathBuf> = fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    versions.sort_by_key(|path| {
        let number = path
            .file_name()
            .and_then(OsStr::to_str)
            .and_then(|n| n.parse::<u32>().ok());
        std::cmp::Reverse(number)
    });
    directories.extend(versions.into_iter().map(|version| version.join("bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    directories.extend(std::env::split_paths(&path));
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read() {
        assert_eq!(
            major("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)"),
            "15"
        );
        assert_eq!(major("postgres (PostgreSQL) 18beta2"), "18");
        assert_eq!(major(""), "");
    }
}
