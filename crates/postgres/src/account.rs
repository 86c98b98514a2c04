//! The user that the server runs as.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::PostgresError;

/// Users that may run the server for root, the first that exists.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

/// The unprivileged user that runs the server when the caller is root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    gid: u32,
}

impl Account {
    /// Whom to run the server as; `None` means as the caller, who is not root.
    ///
    /// A cluster that exists is run as its owner: PostgreSQL takes no other.
    pub(crate) fn choose(data: &Path) -> Result<Option<Self>, PostgresError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        if let Ok(metadata) = fs::metadata(data)
            && metadata.uid() != 0
        {
            return Ok(Some(Self {
                uid: metadata.uid(),
                gid: metadata.gid(),
            }));
        }
        let users = fs::read_to_string("/etc/passwd")
            .map_err(PostgresError::io("read", Path::new("/etc/passwd")))?;
        CANDIDATES
            .iter()
            .find_map(|name| find(&users, name))
            .map(Some)
            .ok_or(PostgresError::NoAccount)
    }

    /// Makes the child of `command` run as this user, without root's supplementary groups.
    pub(crate) fn apply(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Gives `path` to this user.
    pub(crate) fn own(self, path: &Path) -> Result<(), PostgresError> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(PostgresError::io("change the owner of", path))
    }

    /// The first directory on the way to `path`, itself included, that this user may not enter.
    pub(crate) fn blocked_at(self, path: &Path) -> Result<Option<PathBuf>, PostgresError> {
        let mut ancestors: Vec<_> = path.ancestors().collect();
        ancestors.reverse();
        for directory in ancestors {
            let metadata =
                fs::metadata(directory).map_err(PostgresError::io("examine", directory))?;
            let search_bit = if metadata.uid() == self.uid {
                0o100
            } else if metadata.gid() == self.gid {
                0o010
            } else {
                0o001
            };
            if metadata.mode() & search_bit == 0 {
                return Ok(Some(directory.to_owned()));
            }
        }
        Ok(None)
    }
}

/// Finds a user in the text of `/etc/passwd` (name:password:uid:gid:..).
fn find(users: &str, name: &str) -> Option<Account> {
    let mut fields = users
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    Some(Account { uid, gid })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users =
            "root:x:0:0::/root:/bin/sh\npostgresx:x:9:9::/:/x\npostgres:x:101:104:P,,,:/:/x\n";
        assert_eq!(
            find(users, "postgres"),
            Some(Account { uid: 101, gid: 104 })
        );
        assert_eq!(find(users, "nobody"), None);
        assert_eq!(find("postgres:x:many:104", "postgres"), None);
    }

    #[test]
    fn the_closed_directory_is_named() {
        let stranger = Account {
            uid: 4_000_000_000,
            gid: 4_000_000_000,
        };
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(
            stranger.blocked_at(&inner).unwrap().as_deref(),
            Some(top.path())
        );
        fs::set_permissions(top.path(), fs::Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o711)).unwrap();
        assert_eq!(stranger.blocked_at(&inner).unwrap(), None);
    }
}
