//! A fresh database per test.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Weak};
use std::thread;

use assay_postgres::{Cluster, Settings};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tempfile::TempDir;
use tokio::sync::Mutex;

/// A private PostgreSQL of its own, for tests that restart the server. Ends when dropped.
#[derive(Debug)]
pub struct TestCluster {
    /// The cluster.
    pub cluster: Cluster,
    _directory: TempDir,
}

impl TestCluster {
    /// Starts it in a temporary directory, tuned for tests.
    ///
    /// # Errors
    /// When PostgreSQL is not installed or does not start.
    pub async fn start() -> anyhow::Result<Self> {
        // PostgreSQL runs as another user when the tests run as root.
        let directory = tempfile::Builder::new()
            .prefix("assay-test-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir()?;
        let settings = Settings {
            directory: directory.path().join("postgres"),
            durable: false,
        };
        Ok(Self {
            cluster: Cluster::start(&settings).await?,
            _directory: directory,
        })
    }
}

/// The cluster that the tests of this process share while `DATABASE_URL` is not set. The tests
/// that hold a database keep it alive, so it is gone when the last of them ends.
static SHARED: Mutex<Weak<TestCluster>> = Mutex::const_new(Weak::new());

/// An empty database of its own; dropped together with this value, sessions or no sessions.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    server: PgConnectOptions,
    _cluster: Option<Arc<TestCluster>>,
}

impl TestDatabase {
    /// Creates a database with a unique name on the server of `DATABASE_URL`, or on a private
    /// one if that is not set.
    ///
    /// # Panics
    /// When the server cannot be used.
    pub async fn fresh() -> Self {
        let (server_url, cluster) = if let Ok(url) = std::env::var("DATABASE_URL") {
            (url, None)
        } else {
            let cluster = shared_cluster().await;
            (cluster.cluster.url(), Some(cluster))
        };
        let server: PgConnectOptions = server_url
            .parse()
            .expect("DATABASE_URL should be a URL as sqlx takes it");
        let name = format!("test_{}", uuid::Uuid::new_v4().simple());
        execute(&server, format!("create database {name}"))
            .await
            .unwrap_or_else(|error| {
                panic!("cannot create a database on the server of DATABASE_URL: {error}")
            });
        let url = server.clone().database(&name).to_url_lossy().to_string();
        Self {
            name,
            url,
            server,
            _cluster: cluster,
        }
    }

    /// The URL of the database, for sqlx and for `DATABASE_URL` of a program.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A connection apart from the code under test, to look behind its back.
    ///
    /// # Panics
    /// When the server cannot be reached.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url)
            .await
            .expect("the database should take connections")
    }

    /// Ends the test's use of the database and checks that nothing was left behind.
    ///
    /// # Panics
    /// When a session is still open: a pool, a listener or a program was not ended.
    pub async fn finish(self) {
        let mut connection = self
            .server
            .connect()
            .await
            .expect("the server should take connections");
        // A backend ends a moment after its client.
        let left = "every session of the test to end";
        crate::eventually(left, crate::LIMIT, async || {
            let sessions: i64 =
                sqlx::query_scalar("select count(*) from pg_stat_activity where datname = $1")
                    .bind(&self.name)
                    .fetch_one(&mut connection)
                    .await
                    .expect("the server should answer");
            (sessions == 0).then_some(())
        })
        .await;
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let server = self.server.clone();
        let statement = format!("drop database if exists {} with (force)", self.name);
        // A runtime cannot be entered from within the test's own; a thread can have another.
        let dropped = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime
                .block_on(execute(&server, statement))
                .map_err(anyhow::Error::from)
        })
        .join();
        if let Ok(Err(error)) = dropped
            && !thread::panicking()
        {
            panic!("cannot drop the database {}: {error}", self.name);
        }
    }
}

async fn shared_cluster() -> Arc<TestCluster> {
    let mut shared = SHARED.lock().await;
    if let Some(cluster) = shared.upgrade() {
        return cluster;
    }
    let cluster = TestCluster::start()
        .await
        .expect("a private PostgreSQL should start");
    let cluster = Arc::new(cluster);
    *shared = Arc::downgrade(&cluster);
    cluster
}

async fn execute(server: &PgConnectOptions, statement: String) -> Result<(), sqlx::Error> {
    let mut connection = server.connect().await?;
    // The name is made of letters and digits by this module.
    sqlx::query(AssertSqlSafe(statement))
        .execute(&mut connection)
        .await?;
    connection.close().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn databases_are_apart_and_go_away() {
        let (one, two) = (TestDatabase::fresh().await, TestDatabase::fresh().await);
        let mut connection = one.connect().await;
        sqlx::query("create table t ()")
            .execute(&mut connection)
            .await
            .unwrap();
        let elsewhere: bool = sqlx::query_scalar("select to_regclass('t') is not null")
            .fetch_one(&mut two.connect().await)
            .await
            .unwrap();
        assert!(!elsewhere);

        // Dropped although a session is open.
        let name = one.name.clone();
        drop(one);
        let left: bool =
            sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
                .bind(name)
                .fetch_one(&mut two.connect().await)
                .await
                .unwrap();
        assert!(!left);
        two.finish().await;
    }
}
