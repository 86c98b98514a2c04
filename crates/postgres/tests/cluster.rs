//! The private cluster on the machine's PostgreSQL.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use assay_postgres::{Cluster, PostgresError, Settings};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

/// A directory that the server's user can reach when the tests run as root.
fn temporary() -> TempDir {
    tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .unwrap()
}

fn settings(directory: PathBuf) -> Settings {
    Settings {
        directory,
        durable: false,
    }
}

async fn connect(cluster: &Cluster) -> PgConnection {
    PgConnection::connect(&cluster.url()).await.unwrap()
}

fn is_alive(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn data_survives_a_stop_and_an_immediate_restart() {
    let state = temporary();
    let settings = settings(state.path().join("postgres"));

    let mut cluster = Cluster::start(&settings).await.unwrap();
    let mut connection = connect(&cluster).await;
    sqlx::query("create table t (n bigint)")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("insert into t values (1)")
        .execute(&mut connection)
        .await
        .unwrap();

    let (url, pid) = (cluster.url(), cluster.pid());
    cluster.restart_immediate().await.unwrap();
    assert_eq!(cluster.url(), url);
    assert_ne!(cluster.pid(), pid);
    assert!(!is_alive(pid));
    assert!(
        connection.ping().await.is_err(),
        "the restart cuts sessions"
    );
    let mut connection = connect(&cluster).await;
    sqlx::query("insert into t values (2)")
        .execute(&mut connection)
        .await
        .unwrap();

    let pid = cluster.pid();
    cluster.stop().await;
    assert!(!is_alive(pid));

    let cluster = Cluster::start(&settings).await.unwrap();
    let mut connection = connect(&cluster).await;
    let sum: i64 = sqlx::query_scalar("select sum(n)::bigint from t")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(sum, 3);
    let pid = cluster.pid();
    drop(cluster);
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn the_encoding_and_order_do_not_depend_on_the_machine() {
    let state = temporary();
    let cluster = Cluster::start(&settings(state.path().join("postgres")))
        .await
        .unwrap();
    let mut connection = connect(&cluster).await;
    for (setting, value) in [
        ("server_encoding", "UTF8"),
        ("lc_messages", "C"),
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
    ] {
        let shown: String = sqlx::query_scalar("select current_setting($1)")
            .bind(setting)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(shown, value, "{setting}");
    }
    let sorted: bool = sqlx::query_scalar("select 'B' < 'a'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(sorted, "bytes decide the order");
    cluster.stop().await;
}

#[tokio::test]
async fn a_second_start_is_refused_with_the_pid_of_the_first() {
    let state = temporary();
    let settings = settings(state.path().join("postgres"));
    let cluster = Cluster::start(&settings).await.unwrap();
    let error = Cluster::start(&settings).await.unwrap_err();
    assert!(
        matches!(error, PostgresError::InUse { pid: Some(pid), .. } if pid == cluster.pid()),
        "{error}"
    );
    assert!(
        error.to_string().contains(&cluster.pid().to_string()),
        "{error}"
    );
    connect(&cluster).await.ping().await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn the_lock_file_of_a_killed_server_is_no_obstacle() {
    let state = temporary();
    let settings = settings(state.path().join("postgres"));
    let cluster = Cluster::start(&settings).await.unwrap();
    let pid = i32::try_from(cluster.pid())
        .ok()
        .and_then(Pid::from_raw)
        .unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    cluster.ended().await;
    drop(cluster);
    assert!(state.path().join("postgres/data/postmaster.pid").exists());
    let cluster = Cluster::start(&settings).await.unwrap();
    connect(&cluster).await.ping().await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn an_unfinished_cluster_is_made_afresh() {
    let state = temporary();
    let directory = state.path().join("postgres");
    fs::create_dir_all(directory.join("data.unfinished/base")).unwrap();
    let cluster = Cluster::start(&settings(directory)).await.unwrap();
    connect(&cluster).await.ping().await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn a_long_state_directory_gets_a_short_socket() {
    let state = temporary();
    let directory = state.path().join("d".repeat(100)).join("postgres");
    let cluster = Cluster::start(&settings(directory)).await.unwrap();
    let url = cluster.url();
    assert!(url.contains("host=/tmp/assay-"), "{url}");
    connect(&cluster).await.ping().await.unwrap();
    let socket = url
        .split("host=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap()
        .to_owned();
    cluster.stop().await;
    assert!(!PathBuf::from(socket).exists());
}

#[tokio::test]
async fn the_cluster_of_another_major_version_is_refused() {
    let state = temporary();
    let data = state.path().join("postgres/data");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("PG_VERSION"), "9\n").unwrap();
    let error = Cluster::start(&settings(state.path().join("postgres")))
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("PostgreSQL 9") && text.contains("postgresql-9"),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_cannot_start_shows_its_log() {
    let state = temporary();
    let settings = settings(state.path().join("postgres"));
    Cluster::start(&settings).await.unwrap().stop().await;
    let configuration = state.path().join("postgres/data/postgresql.conf");
    fs::write(&configuration, "no_such_setting = 1\n").unwrap();
    let error = Cluster::start(&settings).await.unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}

/// A directory below root's home, say: as root the server cannot run there, and a link is left.
#[tokio::test]
async fn a_state_directory_that_is_closed_to_others_can_be_used() {
    let closed = temporary();
    fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).unwrap();
    let directory = closed.path().join("postgres");
    let settings = settings(directory.clone());
    let mut elsewhere = None;
    for set_aside in [false, true] {
        for table in ["create table t ()", "select from t"] {
            let cluster = Cluster::start(&settings).await.unwrap();
            let mut connection = connect(&cluster).await;
            sqlx::query(table).execute(&mut connection).await.unwrap();
            cluster.stop().await;
        }
        if let Ok(place) = fs::read_link(&directory) {
            let previous = place.with_added_extension("previous");
            assert_eq!(previous.exists(), set_aside);
            fs::remove_file(&directory).unwrap();
            elsewhere = Some([place, previous]);
        } else {
            fs::remove_dir_all(&directory).unwrap();
        }
    }
    assert_eq!(elsewhere.is_some(), rustix::process::geteuid().is_root());
    for place in elsewhere.into_iter().flatten() {
        fs::remove_dir_all(place).unwrap();
    }
}
