//! The private cluster.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use assay_process::{Child, Signal};
use sqlx::Connection;
use tokio::time::{Instant, sleep, timeout};

use crate::PostgresError;
use crate::binaries::Binaries;
use crate::place::{Place, SocketDirectory};
use crate::server::{self, NAME};

/// What a killed parent or server leaves gets this long to end before a start is refused.
const LEFTOVER_LIMIT: Duration = Duration::from_secs(10);
/// A fast shutdown that takes longer is followed by an immediate one.
const STOP_LIMIT: Duration = Duration::from_mins(1);
/// An immediate shutdown that takes longer is followed by SIGKILL.
const DROP_LIMIT: Duration = Duration::from_secs(10);

/// Which cluster to run, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's directory; created if it does not exist.
    pub directory: PathBuf,
    /// Whether commits survive a crash of the machine. Without, the server is faster: for tests.
    pub durable: bool,
}

/// A running private PostgreSQL. Dropping it shuts the server down at once.
#[derive(Debug)]
pub struct Cluster {
    // Fields drop in this order: the server before its socket's directory and the lock.
    server: Child,
    socket: SocketDirectory,
    place: Place,
    binaries: Binaries,
    durable: bool,
}

impl Cluster {
    /// Starts the server, after making the cluster and its database if there are none, and
    /// returns when it takes connections.
    ///
    /// # Errors
    /// [`PostgresError`], for one when PostgreSQL is not installed or the cluster is in use.
    pub async fn start(settings: &Settings) -> Result<Self, PostgresError> {
        let place = Place::open(&settings.directory)?;
        wait_until_free(&place).await?;
        let data = place.data();
        let binaries = Binaries::find(&data)?;
        if !data.join("PG_VERSION").exists() {
            server::create_cluster(&place, &binaries, settings.durable).await?;
        }
        let socket = place.socket()?;
        let server = server::launch(&place, &binaries, socket.as_str(), settings.durable)?;
        let cluster = Self {
            server,
            socket,
            place,
            binaries,
            durable: settings.durable,
        };
        cluster.create_database().await?;
        Ok(cluster)
    }

    /// URL of the cluster's database, for sqlx.
    pub fn url(&self) -> String {
        format!(
            "postgres:///{NAME}?host={}&user={NAME}",
            percent_encoded(self.socket.as_str())
        )
    }

    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Waits until the server ends by itself or by a signal from elsewhere. Cancel-safe.
    pub async fn ended(&self) -> ExitStatus {
        self.server.ended().await
    }

    /// Ends the server at once if it still runs (as a crash would, sessions are cut), starts it
    /// again, and returns when it takes connections. The URL stays the same.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn restart_immediate(&mut self) -> Result<(), PostgresError> {
        self.server.signal(Signal::QUIT);
        self.server.ended().await;
        wait_until_free(&self.place).await?;
        self.server = server::launch(
            &self.place,
            &self.binaries,
            self.socket.as_str(),
            self.durable,
        )?;
        self.create_database().await
    }

    /// Shuts the server down: sessions are ended, what is committed is on disk.
    pub async fn stop(self) {
        self.server.signal(Signal::INT);
        // The immediate shutdown of `drop` follows if this one hangs; it loses nothing either.
        let _ = timeout(STOP_LIMIT, self.server.ended()).await;
    }

    /// Waits for the server and creates the database unless it exists.
    async fn create_database(&self) -> Result<(), PostgresError> {
        let mut connection = server::ready(&self.place, &self.server, self.socket.as_str()).await?;
        let exists: bool =
            sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
                .bind(NAME)
                .fetch_one(&mut connection)
                .await
                .map_err(PostgresError::CreateDatabase)?;
        if !exists {
            sqlx::query("create database assay")
                .execute(&mut connection)
                .await
                .map_err(PostgresError::CreateDatabase)?;
        }
        connection
            .close()
            .await
            .map_err(PostgresError::CreateDatabase)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.server.signal(Signal::QUIT);
        self.server.block_until_ended(DROP_LIMIT);
    }
}

/// The lock is ours, so a server that runs has lost its parent and is shutting down, and a session
/// has lost its server and is about to notice. A server does not start beside either.
async fn wait_until_free(place: &Place) -> Result<(), PostgresError> {
    let deadline = Instant::now() + LEFTOVER_LIMIT;
    while let Some(pid) = place.running_process() {
        if Instant::now() >= deadline {
            return Err(PostgresError::InUse {
                directory: place.root().to_owned(),
                pid: Some(pid),
            });
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A path as the value of a URL's query.
fn percent_encoded(path: &str) -> String {
    let parts = path.bytes().map(|byte| match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other if other.is_ascii_alphanumeric() => char::from(other).to_string(),
        other => format!("%{other:02X}"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::percent_encoded;

    #[test]
    fn only_what_a_url_reserves_is_encoded() {
        assert_eq!(percent_encoded("/run/a b/ü&c"), "/run/a%20b/%C3%BC%26c");
    }
}
