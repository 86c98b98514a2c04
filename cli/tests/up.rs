//! `assay up` as a supervisor, with stand-ins for the server and the workers.
//!
//! The server's stand-in reports the address of an HTTP server in the test itself.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use assay_testkit::{
    LIMIT, Process, Program, Roots, Signal, children, eventually, is_running, signal,
};
use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;

const SERVER: &str = r#"#!/bin/sh
while [ $# -gt 0 ]; do
    if [ "$1" = --address-file ]; then printf %s "$STAND_IN_ADDRESS" >"$2"; fi
    shift
done
exec sleep 1000
"#;
const WORKER: &str = "#!/bin/sh\nexec sleep 1000\n";
const REFUSING: &str = "#!/bin/sh\necho 'gpu:0 is not a device' >&2\nexit 2\n";
const BROKEN: &str = "#!/bin/sh\nexit 9\n";

/// A directory of programs, as `make build` leaves one.
struct Installation {
    roots: Roots,
    address: String,
}

impl Installation {
    async fn new(server: &str, worker: &str) -> Self {
        let roots = Roots::new();
        let install = |name: &str, script: &str| {
            let path = roots.data().join(name);
            fs::write(&path, script).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        };
        install("assay-server", server);
        install("assay-worker", worker);
        fs::copy(env!("CARGO_BIN_EXE_assay"), roots.data().join("assay")).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().route("/readyz", get(async || "ready"));
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { roots, address }
    }

    /// `assay up` on a database that nobody connects to.
    fn up(&self) -> Command {
        let mut command = Command::new(self.roots.data().join("assay"));
        command
            .args(["up", "--listen", "127.0.0.1:0", "--workers", "2"])
            .arg("--model-root")
            .arg(self.roots.models())
            .arg("--data-root")
            .arg(self.roots.data())
            .arg("--state-dir")
            .arg(self.roots.state())
            .env("DATABASE_URL", "postgres://nowhere/assay")
            .env("STAND_IN_ADDRESS", &self.address);
        command
    }

    fn up_with_postgres(&self) -> Command {
        let mut command = self.up();
        command.env_remove("DATABASE_URL");
        command
    }
}

/// The children that stand in for a worker; both stand-ins are named `sleep`.
fn sleepers(supervisor: u32) -> Vec<u32> {
    let all = children(supervisor).into_iter();
    all.filter(|process| process.name == "sleep")
        .map(|process| process.pid)
        .collect()
}

async fn all_end(family: Vec<Process>) {
    for process in family {
        let what = format!("{process:?} to end");
        eventually(&what, LIMIT, async || {
            (!is_running(process.pid)).then_some(())
        })
        .await;
    }
}

/// The server of a private cluster.
fn postgres(state: &Path) -> Option<u32> {
    let text = fs::read_to_string(state.join("postgres/data/postmaster.pid")).ok()?;
    text.lines().next()?.parse().ok()
}

#[tokio::test]
async fn the_service_starts_prints_one_line_and_stops_in_order() {
    let installation = Installation::new(SERVER, WORKER).await;
    let mut up = Program::start(installation.up_with_postgres());
    assert_eq!(
        up.line_after("listening on http://").await,
        installation.address
    );
    let family = eventually("two workers", LIMIT, async || {
        let family = children(up.pid());
        (family.len() == 4).then_some(family)
    })
    .await;
    assert!(
        family.iter().any(|process| process.name == "postgres"),
        "{family:?}"
    );

    up.signal(Signal::TERM);
    assert_eq!(up.ended_within(LIMIT).await.code(), Some(0));
    assert!(
        family.iter().all(|process| !is_running(process.pid)),
        "{family:?}"
    );
    assert_eq!(up.rest_of_output().await, [""; 0]);

    // What it left behind is enough for the next start.
    let mut up = Program::start(installation.up_with_postgres());
    up.line_after("listening on ").await;
    up.signal(Signal::INT);
    assert_eq!(up.ended_within(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn what_dies_is_started_again() {
    let installation = Installation::new(SERVER, WORKER).await;
    let mut up = Program::start(installation.up_with_postgres());
    up.line_after("listening on ").await;

    let before = eventually("server and workers", LIMIT, async || {
        let sleepers = sleepers(up.pid());
        (sleepers.len() == 3).then_some(sleepers)
    })
    .await;
    for pid in &before {
        signal(*pid, Signal::KILL);
    }
    eventually("three others", LIMIT, async || {
        let sleepers = sleepers(up.pid());
        (sleepers.len() == 3 && sleepers.iter().all(|pid| !before.contains(pid))).then_some(())
    })
    .await;

    let state = installation.roots.state();
    let old = postgres(&state).unwrap();
    signal(old, Signal::QUIT);
    eventually("another postgres", LIMIT, async || {
        postgres(&state).filter(|pid| *pid != old)
    })
    .await;
    up.signal(Signal::TERM);
    assert_eq!(up.ended_within(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_killed_supervisor_leaves_no_process() {
    let installation = Installation::new(SERVER, WORKER).await;
    let mut up = Program::start(installation.up_with_postgres());
    up.line_after("listening on ").await;
    let family = children(up.pid());
    assert!(family.len() >= 2, "{family:?}");
    up.kill().await;
    all_end(family).await;

    // A start right after it is not refused.
    let mut up = Program::start(installation.up_with_postgres());
    up.line_after("listening on ").await;
}

#[tokio::test]
async fn the_second_signal_ends_a_stop_that_takes_long() {
    // Stopped processes do not act on SIGTERM.
    let installation = Installation::new(SERVER, WORKER).await;
    let mut up = Program::start(installation.up());
    up.line_after("listening on ").await;
    let family = eventually("server and workers", LIMIT, async || {
        let family = children(up.pid());
        (family.len() == 3).then_some(family)
    })
    .await;
    for process in &family {
        signal(process.pid, Signal::STOP);
    }
    up.signal(Signal::TERM);
    // One of the two arrives while the first is dealt with; both would be merged into one.
    up.signal(Signal::INT);
    assert_eq!(up.ended_within(LIMIT / 2).await.code(), Some(1));
    assert!(
        family.iter().all(|process| !is_running(process.pid)),
        "{family:?}"
    );
}

#[tokio::test]
async fn a_worker_that_cannot_run_does_not_end_the_service() {
    let installation = Installation::new(SERVER, BROKEN).await;
    let mut up = Program::start(installation.up());
    up.line_after("listening on ").await;
    up.signal(Signal::TERM);
    assert_eq!(up.ended_within(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_worker_that_refuses_its_settings_ends_the_service() {
    let installation = Installation::new(SERVER, REFUSING).await;
    // Asynchronous, because the test answers `/readyz` meanwhile.
    let mut command = tokio::process::Command::from(installation.up());
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    let refusal = errors.find("gpu:0 is not a device").unwrap();
    let end = errors
        .find("refuses its settings, as it says above")
        .unwrap();
    assert!(refusal < end, "{errors}");
    assert!(!errors.contains("starting worker"), "{errors}");
}

#[tokio::test]
async fn server_and_workers_share_the_state_directory() {
    let tells = r#"#!/bin/sh
echo "$0 $*" >>"$(dirname "$0")/arguments"
"#;
    let server = tells.to_owned() + SERVER.strip_prefix("#!/bin/sh\n").unwrap();
    let installation = Installation::new(&server, &(tells.to_owned() + "exec sleep 1000\n")).await;
    let mut up = Program::start(installation.up());
    up.line_after("listening on ").await;
    let state = installation.roots.state().canonicalize().unwrap();
    let given = format!("--state-dir {}", state.display());
    let file = installation.roots.data().join("arguments");
    eventually("a server and two workers", LIMIT, async || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        (text.lines().filter(|line| line.contains(&given)).count() == 3).then_some(())
    })
    .await;
    up.signal(Signal::TERM);
    assert_eq!(up.ended_within(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_state_directory_has_one_user() {
    let installation = Installation::new(SERVER, WORKER).await;
    let mut first = Program::start(installation.up());
    first.line_after("listening on ").await;
    let (code, errors) = failure(installation.up());
    assert_eq!(code, Some(1));
    assert!(
        errors.contains(&format!("(pid {})", first.pid())),
        "{errors}"
    );
}

#[tokio::test]
async fn a_service_that_cannot_start_says_why() {
    let installation = Installation::new(BROKEN, WORKER).await;
    let (code, errors) = failure(installation.up());
    assert_eq!(code, Some(1));
    assert!(errors.contains("exit status: 9"), "{errors}");

    let mut no_models = installation.up();
    no_models.args(["--model-root", "/nonexistent"]);
    let (code, errors) = failure(no_models);
    assert_eq!(
        code,
        Some(2),
        "an argument given twice is wrong usage: {errors}"
    );

    fs::remove_dir(installation.roots.models()).unwrap();
    let (code, errors) = failure(installation.up());
    assert_eq!(code, Some(1));
    assert!(errors.contains("--model-root"), "{errors}");

    let program: PathBuf = installation.roots.data().join("assay-server");
    fs::remove_file(&program).unwrap();
    fs::create_dir(installation.roots.models()).unwrap();
    let (code, errors) = failure(installation.up());
    assert_eq!(code, Some(1));
    assert!(errors.contains(program.to_str().unwrap()), "{errors}");
}

fn failure(mut command: Command) -> (Option<i32>, String) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.stdout.is_empty());
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}
