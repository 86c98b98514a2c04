//! The client against a stand-in of the API.

use std::collections::VecDeque;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;

const ID: &str = "0192d3a4-0000-7000-8000-000000000001";

/// What the stand-in was asked, and what it answers next.
#[derive(Default)]
struct Script {
    answers: VecDeque<(StatusCode, String)>,
    requests: Vec<String>,
    keys: Vec<String>,
}

type Shared = Arc<Mutex<Script>>;

async fn answer(
    State(script): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut script = script.lock().unwrap();
    script
        .requests
        .push(format!("{method} {uri} {}", String::from_utf8_lossy(&body)));
    if let Some(key) = headers.get("idempotency-key") {
        script.keys.push(key.to_str().unwrap().to_owned());
    }
    let (status, text) = script.answers.pop_front().expect("a request too many");
    (status, text).into_response()
}

/// Runs `assay` with `--server` pointing at a stand-in that gives these answers in turn.
async fn assay(arguments: &[&str], answers: &[(u16, String)]) -> (Output, Shared) {
    let script = Shared::default();
    script.lock().unwrap().answers = answers
        .iter()
        .map(|(status, text)| (StatusCode::from_u16(*status).unwrap(), text.clone()))
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(script.clone());
    tokio::spawn(async { axum::serve(listener, router).await });
    let output = run(arguments, &server).await;
    assert!(
        script.lock().unwrap().answers.is_empty(),
        "not all answers were asked for"
    );
    (output, script)
}

async fn run(arguments: &[&str], server: &str) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_assay"))
        .args(arguments)
        .env("ASSAY_SERVER", server)
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn job(state: &str, scored: u64, error: &str) -> String {
    format!(
        r#"{{"id": "{ID}", "name": null, "state": "{state}", "model": "m", "datasets": ["d.txt"],
            "method": {{"convention": "rolling", "window": 8}}, "dtype": "float32", "tags": {{}},
            "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null,
            "progress": {{"scored_tokens": {scored}, "planned_tokens": 1000,
                "tokens_per_second": null, "eta_seconds": null, "datasets": []}},
            "error": {error}}}"#
    )
}

fn result() -> String {
    format!(
        r#"{{"job_id": "{ID}", "complete": true, "model": null, "tokenizer": null,
            "method": {{"convention": "rolling", "window": 8}}, "dtype": "float32",
            "device_kinds": ["cpu"], "version": "0.1.0", "numerics_version": 1, "datasets": [],
            "performance": {{"tokens_per_second": null, "seconds": 1.0, "counted_tokens": 1000,
                "computed_tokens": 1000}}, "warnings": ["few clusters"]}}"#
    )
}

const PROBLEM: &str = r#"{"type": "/docs/errors#E0003", "title": "Invalid request", "status": 422,
    "code": "E0003", "detail": "2 fields are wrong",
    "errors": [{"field": "model", "detail": "no such file"}, {"field": "dtype", "detail": "no"}]}"#;

#[tokio::test]
async fn a_job_is_posted_as_asked_and_its_id_printed() {
    let arguments = [
        "submit",
        "--model",
        "m",
        "--dataset",
        "a.txt",
        "--dataset",
        "b.jsonl",
        "--name",
        "n",
        "--window",
        "64",
        "--dtype",
        "bfloat16",
        "--tag",
        "k=v",
        "--limit-tokens",
        "10",
    ];
    let (output, script) = assay(&arguments, &[(201, job("queued", 0, "null"))]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{ID}\n"));
    assert_eq!(
        script.lock().unwrap().requests,
        [
            r#"POST /jobs {"name":"n","model":"m","datasets":[{"path":"a.txt","limit_tokens":10},{"path":"b.jsonl","limit_tokens":10}],"method":{"convention":"rolling","window":64},"dtype":"bfloat16","tags":{"k":"v"}}"#
        ]
    );
}

#[tokio::test]
async fn a_job_is_followed_over_an_interruption_to_its_table() {
    let unavailable = PROBLEM.replace("422", "503").replace("E0003", "E0009");
    let (output, script) = assay(
        &["submit", "--model", "m", "--dataset", "d.txt", "--wait"],
        &[
            (503, unavailable.clone()),
            (201, job("queued", 0, "null")),
            (200, job("running", 500, "null")),
            (502, "<html>".to_owned()),
            (503, unavailable),
            (200, job("succeeded", 1000, "null")),
            (200, result()),
        ],
    )
    .await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("running: 500 of 1,000 tokens"), "{errors}");
    assert!(errors.contains("trying again"), "{errors}");
    let shown = text(&output.stdout);
    assert!(shown.starts_with(&format!("{ID}\n┌")), "{shown}");
    assert!(shown.contains("warning: few clusters"), "{shown}");
    let script = script.lock().unwrap();
    assert_eq!(script.keys.len(), 2);
    assert_eq!(script.keys[0], script.keys[1]);
    assert_eq!(
        script.requests.last().unwrap().trim(),
        format!("GET /jobs/{ID}/results")
    );
}

#[tokio::test]
async fn a_job_that_nobody_takes_up_is_explained() {
    let mut answers = vec![(201, job("queued", 0, "null"))];
    answers.extend(vec![(200, job("queued", 0, "null")); 4]);
    let nobody = r#"{"status": "ready", "database": true, "workers": 0}"#;
    answers.push((200, nobody.to_owned()));
    answers.extend([(200, job("succeeded", 1000, "null")), (200, result())]);
    let arguments = ["submit", "--model", "m", "--dataset", "d.txt", "--wait"];
    let (output, script) = assay(&arguments, &answers).await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("no worker is live"), "{errors}");
    let script = script.lock().unwrap();
    assert_eq!(script.requests[5].trim(), "GET /readyz");
}

#[tokio::test]
async fn a_job_that_does_not_succeed_is_exit_code_1() {
    let error = r#"{"code": "E4003", "detail": "line 3 is not JSON", "field": "datasets[0]"}"#;
    let failed = job("failed", 0, error);
    let answers = [(201, job("queued", 0, "null")), (200, failed.clone())];
    let arguments = [
        "submit",
        "--model",
        "m",
        "--dataset",
        "d.txt",
        "--wait",
        "--json",
    ];
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).trim(), failed);
    let errors = text(&output.stderr);
    assert!(
        errors.contains("the job failed (E4003): datasets[0]: line 3 is not JSON"),
        "{errors}"
    );
}

#[tokio::test]
async fn a_refusal_is_exit_code_3_with_a_line_for_each_field() {
    let (output, _) = assay(
        &["submit", "--model", "m", "--dataset", "d"],
        &[(422, PROBLEM.to_owned())],
    )
    .await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        text(&output.stderr),
        "assay: Invalid request (E0003): 2 fields are wrong\n  model: no such file\n  dtype: no\n"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_exit_code_3_at_once() {
    // The port was free a moment ago, and nobody listens on it.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = run(&["jobs"], &server).await;
    assert_eq!(output.status.code(), Some(3));
    let errors = text(&output.stderr);
    assert!(
        errors.contains(&server) && errors.contains("assay up"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let output = run(&["jobs"], "not a url").await;
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test]
async fn another_server_is_told_apart() {
    let (output, _) = assay(&["results", ID], &[(404, "<html>".to_owned())]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("an Assay server?"));
}

#[tokio::test]
async fn jobs_are_listed_and_cancelled() {
    let page = format!(
        r#"{{"items": [{}], "next": null}}"#,
        job("running", 500, "null")
    );
    let (output, script) = assay(
        &["jobs", "--state", "running", "--limit", "5"],
        &[(200, page)],
    )
    .await;
    assert_eq!(
        script.lock().unwrap().requests,
        ["GET /jobs?limit=5&state=running "]
    );
    let shown = text(&output.stdout);
    assert!(
        shown.contains(ID) && shown.contains("500 of 1,000"),
        "{shown}"
    );

    let (output, script) = assay(&["cancel", ID], &[(200, job("cancelled", 500, "null"))]).await;
    assert_eq!(
        script.lock().unwrap().requests,
        [format!("DELETE /jobs/{ID} ")]
    );
    assert_eq!(text(&output.stdout), format!("{ID} cancelled\n"));
}

#[tokio::test]
async fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["submit", "--model", "m"][..],
        &["results", "not-an-id"],
        &["jobs", "--state", "asleep"],
        &[
            "submit",
            "--model",
            "m",
            "--dataset",
            "d",
            "--tag",
            "novalue",
        ],
    ] {
        let output = run(arguments, "http://127.0.0.1:1").await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
