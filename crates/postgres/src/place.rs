//! Where a cluster lives on disk.
//!
//! ```text
//! <directory>/lock      held while this program uses the cluster
//! <directory>/log       what initdb and the server print, afresh at every start
//! <directory>/data/     the cluster, owned by the user that runs the server
//! <directory>/socket/   the server's socket; below /tmp where this path would be too long
//! ```

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::PostgresError;
use crate::account::Account;

/// The kernel's limit for the path of a socket (`sun_path` without its final zero).
const SOCKET_PATH_MAX: usize = 107;
/// The name of the socket in its directory.
const SOCKET_NAME: &str = "/.s.PGSQL.5432";
/// Where root's clusters go if the server's user cannot reach the state directory.
const REACHABLE: &str = "/var/lib/assay";

/// The directory of a cluster, locked for this program.
#[derive(Debug)]
pub(crate) struct Place {
    root: PathBuf,
    account: Option<Account>,
    /// Unlocked by the kernel when the file closes, in whatever way the process ends.
    _lock: File,
}

impl Place {
    /// Creates what is missing of `directory` and locks it.
    pub(crate) fn open(directory: &Path) -> Result<Self, PostgresError> {
        let account = Account::choose(&directory.join("data"))?;
        fs::create_dir_all(directory).map_err(PostgresError::io("create", directory))?;
        let mut root = canonical(directory)?;
        if let Some(account) = account {
            fs::set_permissions(&root, Permissions::from_mode(0o711))
                .map_err(PostgresError::io("change the mode of", &root))?;
            if let Some(blocked) = account.blocked_at(&root)? {
                root = relocate(&root, account, blocked)?;
            }
        }
        let lock = lock(&root)?;
        Ok(Self {
            root,
            account,
            _lock: lock,
        })
    }

    pub(crate) fn account(&self) -> Option<Account> {
        self.account
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The pid of a process of PostgreSQL that runs on this cluster: the server, or a session
    /// that has not noticed yet that its server was killed. The pid in the server's lock file
    /// would not do, for it may belong to another process by now. Every process of PostgreSQL
    /// works in its data directory.
    pub(crate) fn running_process(&self) -> Option<u32> {
        let data = self.data();
        let works_here = |directory: &Path| {
            fs::read_link(directory.join("cwd")).is_ok_and(|path| path == data)
                && fs::read_to_string(directory.join("comm"))
                    .is_ok_and(|name| name.trim_end() == "postgres")
        };
        let mut processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.find_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            works_here(&process.path()).then_some(pid)
        })
    }

    /// An empty directory that only the server's user can enter, afresh at `path`.
    pub(crate) fn private_directory(&self, path: &Path) -> Result<(), PostgresError> {
        if path.exists() {
            fs::remove_dir_all(path).map_err(PostgresError::io("remove", path))?;
        }
        DirBuilder::new()
            .mode(0o700)
            .create(path)
            .map_err(PostgresError::io("create", path))?;
        self.account.map_or(Ok(()), |account| account.own(path))
    }

    /// The directory of the socket.
    pub(crate) fn socket(&self) -> Result<SocketDirectory, PostgresError> {
        let path = self.root.join("socket");
        if path.as_os_str().len() + SOCKET_NAME.len() <= SOCKET_PATH_MAX {
            self.private_directory(&path)?;
            return SocketDirectory::new(path, None);
        }
        // Under TMPDIR the path could be too long again.
        let short = tempfile::Builder::new()
            .prefix("assay-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in("/tmp")
            .map_err(PostgresError::io("create a directory in", "/tmp"))?;
        self.account
            .map_or(Ok(()), |account| account.own(short.path()))?;
        SocketDirectory::new(short.path().to_owned(), Some(short))
    }
}

/// The directory of the server's socket, removed with this value if it is a temporary one.
#[derive(Debug)]
pub(crate) struct SocketDirectory {
    path: String,
    _temporary: Option<TempDir>,
}

impl SocketDirectory {
    fn new(path: PathBuf, temporary: Option<TempDir>) -> Result<Self, PostgresError> {
        let path = path
            .into_os_string()
            .into_string()
            .map_err(|path| PostgresError::NotUtf8(path.into()))?;
        Ok(Self {
            path,
            _temporary: temporary,
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.path
    }
}

fn lock(root: &Path) -> Result<File, PostgresError> {
    let path = root.join("lock");
    let lock = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(PostgresError::io("open", &path))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => Err(PostgresError::InUse {
            directory: root.to_owned(),
            pid: server_pid(root),
        }),
        Err(fs::TryLockError::Error(source)) => Err(PostgresError::Io {
            action: "lock",
            path,
            source,
        }),
    }
}

/// The pid in the server's own lock file, whether or not that server still runs.
fn server_pid(root: &Path) -> Option<u32> {
    let text = fs::read_to_string(root.join("data/postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

fn canonical(path: &Path) -> Result<PathBuf, PostgresError> {
    fs::canonicalize(path).map_err(PostgresError::io("resolve", path))
}

/// Puts a new cluster where `account` can reach it and leaves a link to it at `root`. A state
/// directory below root's home, which is closed to other users, is a usual case.
///
/// The place follows from `root`: when a state directory was removed and is made again, the
/// cluster that it had is set aside, and the one that was set aside before goes.
fn relocate(root: &Path, account: Account, blocked: PathBuf) -> Result<PathBuf, PostgresError> {
    // Only an empty directory gives way to the link; a cluster is never moved.
    if fs::remove_dir(root).is_err() {
        return Err(PostgresError::Unreachable {
            uid: account.uid,
            blocked,
        });
    }
    let name = file_name_of(root);
    let place = Path::new(REACHABLE).join(&name);
    if place.exists() {
        let _unused = lock(&place)?;
        let set_aside = place.with_file_name(format!("{name}.previous"));
        if set_aside.exists() {
            fs::remove_dir_all(&set_aside).map_err(PostgresError::io("remove", &set_aside))?;
        }
        fs::rename(&place, set_aside).map_err(PostgresError::io("rename", &place))?;
    }
    fs::create_dir_all(&place).map_err(PostgresError::io("create", &place))?;
    fs::set_permissions(&place, Permissions::from_mode(0o711))
        .map_err(PostgresError::io("change the mode of", &place))?;
    if let Some(blocked) = account.blocked_at(&place)? {
        return Err(PostgresError::Unreachable {
            uid: account.uid,
            blocked,
        });
    }
    symlink(&place, root).map_err(PostgresError::io("create the link", root))?;
    Ok(place)
}

/// A file name that is different for every path: `/` becomes `-`, and other bytes that are not
/// usual in names, `-` among them, are percent-encoded.
fn file_name_of(path: &Path) -> String {
    let bytes = path
        .as_os_str()
        .as_bytes()
        .iter()
        .skip_while(|byte| **byte == b'/');
    let parts = bytes.map(|byte| match byte {
        b'/' => "-".to_owned(),
        b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_names_of_their_own() {
        for (path, name) in [
            ("/root/assay/state/postgres", "root-assay-state-postgres"),
            ("/root/assay-state/postgres", "root-assay%2Dstate-postgres"),
            ("/root/a.previous", "root-a%2Eprevious"),
        ] {
            assert_eq!(file_name_of(Path::new(path)), name);
        }
    }
}
