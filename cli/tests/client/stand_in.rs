//! A stand-in of the API.

use std::collections::VecDeque;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;

pub(crate) const ID: &str = "0192d3a4-0000-7000-8000-000000000001";
pub(crate) const BASELINE: &str = "0192d3a4-0000-7000-8000-000000000002";

/// What the stand-in was asked, and what it answers next.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) answers: VecDeque<(StatusCode, String)>,
    pub(crate) requests: Vec<String>,
    pub(crate) keys: Vec<String>,
}

pub(crate) type Shared = Arc<Mutex<Script>>;

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
pub(crate) async fn assay(arguments: &[&str], answers: &[(u16, String)]) -> (Output, Shared) {
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

pub(crate) async fn run(arguments: &[&str], server: &str) -> Output {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_assay"))
        .args(arguments)
        .env("ASSAY_SERVER", server)
        .env("COLUMNS", "80")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

pub(crate) fn job(state: &str, scored: u64, error: &str) -> String {
    format!(
        r#"{{"id": "{ID}", "name": null, "state": "{state}", "model": "m", "datasets": ["d.txt"],
            "method": {{"convention": "rolling", "window": 8}}, "dtype": "float32", "tags": {{}},
            "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null,
            "progress": {{"scored_tokens": {scored}, "planned_tokens": 1000,
                "tokens_per_second": null, "eta_seconds": null, "datasets": []}},
            "error": {error}}}"#
    )
}

pub(crate) fn result() -> String {
    format!(
        r#"{{"job_id": "{ID}", "complete": true, "model": null, "tokenizer": null,
            "method": {{"convention": "rolling", "window": 8}}, "dtype": "float32",
            "device_kinds": ["cpu"], "version": "0.1.0", "numerics_version": 1, "datasets": [],
            "performance": {{"tokens_per_second": null, "seconds": 1.0, "counted_tokens": 1000,
                "computed_tokens": 1000}}, "warnings": ["few clusters"]}}"#
    )
}

pub(crate) const PROBLEM: &str = r#"{"type": "/docs/errors#E0003", "title": "Invalid request", "status": 422,
    "code": "E0003", "detail": "2 fields are wrong",
    "errors": [{"field": "model", "detail": "no such file"}, {"field": "dtype", "detail": "no"}]}"#;
