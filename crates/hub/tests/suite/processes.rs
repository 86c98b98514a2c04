//! Real processes: one that is killed, and two that fetch the same.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;

use assay_process::{Child, Signal, Terminal};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{Fixture, model, names};
use assay_testkit::hub::{Fault, Seen, large};

const SIZE: usize = 8 << 20;

/// The example `fetch`, which cargo builds with the tests.
fn start(fixture: &Fixture) -> Child {
    let test = std::env::current_exe().unwrap();
    // target/<profile>/deps/<test> and target/<profile>/examples/fetch
    let program = test.ancestors().nth(2).unwrap().join("examples/fetch");
    assert!(
        program.is_file(),
        "build {} first: cargo build --release --examples",
        program.display()
    );
    let mut command = Command::new(program);
    command
        .arg(fixture.cache.path())
        .arg("hf://o/n")
        .env("HF_ENDPOINT", &fixture.server.url)
        .env_remove("HF_TOKEN")
        .stdout(std::process::Stdio::piped());
    Child::spawn(command, Terminal::Detached, Signal::KILL).unwrap()
}

async fn last_line(child: &mut Child) -> String {
    let stdout = tokio::process::ChildStdout::from_std(child.take_stdout().unwrap()).unwrap();
    let mut lines = BufReader::new(stdout).lines();
    let mut last = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        last = line;
    }
    assert!(child.ended().await.success());
    last
}

fn of_weights(seen: Vec<Seen>) -> Vec<(u64, u64)> {
    seen.into_iter()
        .filter(|request| request.cdn)
        .map(|request| (request.from, request.sent.load(Ordering::Relaxed)))
        .collect()
}

#[tokio::test]
async fn a_download_that_is_killed_is_continued_by_the_next_process() {
    let fixture = Fixture::new().await;
    model(&fixture.server, SIZE);
    // The small files come first; they are asked for in one call and before the weights.
    fixture
        .server
        .fail([Fault::Cut(usize::MAX), Fault::Hold(SIZE / 2)]);
    let mut child = start(&fixture);
    let stdout = tokio::process::ChildStdout::from_std(child.take_stdout().unwrap()).unwrap();
    let mut lines = BufReader::new(stdout).lines();
    loop {
        let line = lines
            .next_line()
            .await
            .unwrap()
            .expect("it waits for the other half");
        let done: usize = line.split(' ').next().unwrap().parse().unwrap();
        if done >= SIZE * 4 / 10 {
            break;
        }
    }
    child.signal(Signal::KILL);
    assert!(!child.ended().await.success());
    let blobs = fixture.path("models--o--n/blobs");
    assert_eq!(
        names(&blobs)
            .iter()
            .filter(|name| name.ends_with(".incomplete"))
            .count(),
        1
    );
    assert_eq!(of_weights(fixture.server.seen()).len(), 1);

    let directory = PathBuf::from(last_line(&mut start(&fixture)).await);
    let bytes = std::fs::read(directory.join("model.safetensors")).unwrap();
    assert_eq!(bytes, large(SIZE).bytes);
    let [(from, sent)] = of_weights(fixture.server.seen())[..] else {
        panic!("one request is enough");
    };
    assert!(from >= SIZE as u64 * 4 / 10, "{from}");
    assert_eq!(
        from + sent,
        SIZE as u64,
        "no byte that was kept is sent again"
    );
    assert!(
        !names(&blobs)
            .iter()
            .any(|name| name.ends_with(".incomplete"))
    );
}

#[tokio::test]
async fn processes_that_fetch_the_same_receive_it_once() {
    let fixture = Fixture::new().await;
    model(&fixture.server, SIZE);
    let mut children: Vec<Child> = (0..4).map(|_| start(&fixture)).collect();
    let mut directories = Vec::new();
    for child in &mut children {
        directories.push(last_line(child).await);
    }
    directories.dedup();
    assert_eq!(directories.len(), 1);
    let path = PathBuf::from(&directories[0]).join("model.safetensors");
    assert_eq!(std::fs::read(path).unwrap(), large(SIZE).bytes);
    assert_eq!(of_weights(fixture.server.seen()), [(0, SIZE as u64)]);
}
