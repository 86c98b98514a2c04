//! `with-postgres` as `make test` uses it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use assay_testkit::{LIMIT, children, eventually, is_running, signal};
use assay_testkit::{Program, Signal};

const WITH_POSTGRES: &str = env!("CARGO_BIN_EXE_with-postgres");

#[test]
fn the_command_gets_a_database_and_gives_its_status() {
    let script = r#"case "$DATABASE_URL" in postgres:///assay?host=*) exit 7;; esac"#;
    let status = Command::new(WITH_POSTGRES)
        .args(["sh", "-c", script])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7));
    let status = Command::new(WITH_POSTGRES)
        .args(["sh", "-c", "kill -9 $$"])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(137));
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let output = Command::new(WITH_POSTGRES)
        .arg("no-such-command")
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no-such-command"));
}

#[tokio::test]
async fn nothing_outlives_a_killed_supervisor() {
    let mut program = Program::spawn("with-postgres", |command| {
        command.args(["sh", "-c", "echo server $DATABASE_URL; exec sleep 1000"]);
    });
    let url = program.line_after("server ").await;
    let family = children(program.pid());
    assert_eq!(family.len(), 2, "{family:?}");
    let socket = url
        .split("host=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    let directory = PathBuf::from(socket).ancestors().nth(2).unwrap().to_owned();

    signal(program.pid(), Signal::KILL);
    for process in family {
        let what = format!("{process:?} to end");
        eventually(&what, LIMIT, async || {
            (!is_running(process.pid)).then_some(())
        })
        .await;
    }
    // A killed supervisor cannot remove its directory.
    fs::remove_dir_all(directory).unwrap();
}
