//! `assay doctor` with stand-ins for the server and the worker.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const SERVER: &str = r#"#!/bin/sh
echo "$*" >>"$(dirname "$0")/arguments"
[ "$1" = migrate ] && exit 0
echo '{"check": "database", "ok": true, "detail": "'"$DATABASE_URL"'"}'
"#;
const WORKER: &str = r#"#!/bin/sh
echo "$*" >>"$(dirname "$0")/arguments"
echo '{"check": "devices", "ok": false, "detail": "gpu:0 is none", "remedy": "write cuda:0"}'
exit 1
"#;
const WELL: &str = "#!/bin/sh\necho '{\"check\": \"devices\", \"ok\": true, \"detail\": \"d\"}'\n";
const SILENT: &str = "#!/bin/sh\necho 'unexpected argument' >&2\nexit 2\n";

fn installation(server: &str, worker: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in [("assay-server", server), ("assay-worker", worker)] {
        let path = folder.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_assay"), folder.path().join("assay")).unwrap();
    folder
}

fn doctor(folder: &Path, database_url: Option<&str>, arguments: &[&str]) -> Output {
    let mut command = Command::new(folder.join("assay"));
    command.arg("doctor").args(arguments).stdin(Stdio::null());
    match database_url {
        Some(url) => command.env("DATABASE_URL", url),
        None => command.env_remove("DATABASE_URL"),
    };
    command.env("COLUMNS", "80").output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn each_check_is_a_line_and_a_failed_one_says_what_to_do() {
    let folder = installation(SERVER, WORKER);
    let arguments = ["--devices=gpu:0", "--state-dir=/s", "--model-root=/m"];
    let output = doctor(folder.path(), Some("postgres://db/x"), &arguments);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "\
ok    database: postgres://db/x
FAIL  devices: gpu:0 is none
      -> write cuda:0
"
    );
    assert_eq!(text(&output.stderr), "assay: 1 check failed\n");
    let given = fs::read_to_string(folder.path().join("arguments")).unwrap();
    let folders = "doctor --json --model-root /m --data-root data --state-dir /s";
    assert_eq!(given, format!("{folders}\n{folders} --devices gpu:0\n"));

    let output = doctor(folder.path(), Some("postgres://db/x"), &["--json"]);
    let checks: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(checks[1]["remedy"], "write cuda:0");
}

#[test]
fn a_private_postgresql_is_tried_where_there_is_no_other() {
    let folder = installation(SERVER, WELL);
    let output = doctor(folder.path(), None, &[]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(
        shown.contains("ok    PostgreSQL: a private one starts"),
        "{shown}"
    );
    assert!(shown.contains("postgres:///assay?host="), "{shown}");
}

#[test]
fn a_program_that_does_not_answer_is_a_failed_check() {
    let folder = installation(SERVER, SILENT);
    let output = doctor(folder.path(), Some("postgres://db/x"), &[]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("FAIL  assay-worker: no answer") && shown.contains("unexpected argument"),
        "{shown}"
    );
    fs::remove_file(folder.path().join("assay-worker")).unwrap();
    let output = doctor(folder.path(), Some("postgres://db/x"), &[]);
    assert!(text(&output.stdout).contains("does not exist"));
}
