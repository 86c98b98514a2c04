//! `assay up` with the real programs, and `assay submit` against it.

use assay_api::JobResult;
use assay_testkit::hub::Server;
use assay_testkit::{LIMIT, Program, Roots, Signal, children, eventually, is_running, signal};

use crate::hub::push;
use crate::service::program_of_assay;

async fn submit(url: &str, model: &str) -> JobResult {
    let mut command = program_of_assay("assay");
    command
        .args(["submit", "--model", model, "--dataset", "a.txt"])
        .args(["--no-reuse", "--wait", "--json"])
        .env("ASSAY_SERVER", url);
    let mut submit = Program::start(command);
    let status = submit.ended_within(LIMIT).await;
    let output = submit.rest_of_output().await.join("\n");
    assert_eq!(status.code(), Some(0), "{output}");
    serde_json::from_str(&output).expect("the results as the server answers them")
}

/// The processes of the service that are workers. A name holds 15 bytes.
fn worker(supervisor: u32) -> Option<u32> {
    let family = children(supervisor).into_iter();
    let mut workers = family.filter(|process| process.name == "assay-worker");
    workers.next().map(|process| process.pid)
}

#[tokio::test]
async fn the_embedded_service_scores_restarts_and_leaves_nothing() {
    let roots = Roots::new();
    let hub = Server::start().await;
    push(&hub, "org/base", &roots.add_model("llama_gqa"));
    roots.add_data("a.txt", "Call me Ishmael.");
    let mut command = program_of_assay("assay");
    command
        .args(["up", "--listen", "127.0.0.1:0", "--devices", "cpu:0"])
        .arg("--hub")
        .env("HF_ENDPOINT", &hub.url)
        .arg("--model-root")
        .arg(roots.models())
        .arg("--data-root")
        .arg(roots.data())
        .arg("--state-dir")
        .arg(roots.state());
    let mut up = Program::start(command);
    let url = up.line_after("listening on ").await;
    let first = submit(&url, "llama_gqa").await;
    assert!(first.complete);
    assert_eq!(first.datasets[0].name, "a.txt");

    let killed = worker(up.pid()).expect("a worker has run the job");
    signal(killed, Signal::KILL);
    eventually("another worker", LIMIT, async || {
        worker(up.pid()).filter(|pid| *pid != killed)
    })
    .await;
    // The server and the workers are told of the hub.
    let second = submit(&url, "hf://org/base").await;
    assert_eq!(first.datasets[0].nll_exact, second.datasets[0].nll_exact);

    let family = children(up.pid());
    assert_eq!(family.len(), 3, "{family:?}");
    up.signal(Signal::TERM);
    assert_eq!(up.ended_within(LIMIT).await.code(), Some(0));
    assert!(
        family.iter().all(|process| !is_running(process.pid)),
        "{family:?}"
    );
}
