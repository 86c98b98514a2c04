//! What can go wrong with a private cluster.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why the private cluster cannot be used; every text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// PostgreSQL is not installed where it is looked for.
    #[error(
        "PostgreSQL's programs (initdb, postgres) were not found; install them with \
         `apt-get install postgresql`, name their folder in PG_BINDIR, or give the URL of an \
         existing server in DATABASE_URL (looked in: {})",
        list(.0)
    )]
    NotInstalled(Vec<PathBuf>),
    /// The cluster was made by another major version than those installed.
    #[error(
        "the cluster in {directory} was made by PostgreSQL {wanted}, which is not installed \
         (found: {found}); install postgresql-{wanted}, or remove that directory to start afresh",
        directory = .directory.display()
    )]
    OtherVersion {
        /// The data directory.
        directory: PathBuf,
        /// Major version that made it.
        wanted: String,
        /// Major versions that were found.
        found: String,
    },
    /// The caller is root and the machine has no unprivileged user to run the server.
    #[error(
        "PostgreSQL does not run as root, and this machine has neither a user `postgres` nor \
         `nobody` to run it as; start Assay as another user"
    )]
    NoAccount,
    /// The unprivileged user cannot reach the cluster's directory.
    #[error(
        "PostgreSQL does not run as root, and the user it runs as (uid {uid}) may not enter \
         {blocked}; choose a state directory that every user can reach, such as /var/lib/assay, \
         or `chmod o+x` that directory",
        blocked = .blocked.display()
    )]
    Unreachable {
        /// Id of the user.
        uid: u32,
        /// The directory that it may not enter.
        blocked: PathBuf,
    },
    /// The cluster is in use.
    #[error(
        "the cluster in {directory} is in use{}; stop it first or choose another state directory",
        .pid.map(|pid| format!(" by the server with pid {pid}")).unwrap_or_default(),
        directory = .directory.display()
    )]
    InUse {
        /// The cluster's directory.
        directory: PathBuf,
        /// Process id of the running server, where it is known.
        pid: Option<u32>,
    },
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried, as in "cannot {action} {path}".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The directory has a name that cannot be put into a URL.
    #[error("{} is not valid UTF-8; choose another state directory", .0.display())]
    NotUtf8(PathBuf),
    /// A program of PostgreSQL ended when it should not have.
    #[error("{program} ended ({status}); the end of its log, {}:\n{tail}", .log.display())]
    Ended {
        /// `initdb` or `postgres`.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The server runs but does not take connections.
    #[error(
        "the private PostgreSQL did not take connections within {seconds} s ({source}); the end \
         of its log, {}:\n{tail}",
        .log.display()
    )]
    NotReady {
        /// How long was waited.
        seconds: u64,
        /// What the last try to connect answered.
        source: sqlx::Error,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// The database could not be created.
    #[error("cannot create the database in the private PostgreSQL: {0}")]
    CreateDatabase(#[source] sqlx::Error),
}

impl PostgresError {
    /// For `map_err`: the file system refused `action` on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shown.join(", ")
}
