//! Datasets that are kept on the server, and looks at what is there.

use std::fs;

use serde_json::json;

use crate::stand_in::{assay, run, text};

fn upload() -> serde_json::Value {
    json!({
        "name": "chats.jsonl", "digest": format!("sha256:{}", "0".repeat(64)), "bytes": 4096,
        "created_at": "2026-01-01T00:00:00Z",
    })
}

#[tokio::test]
async fn a_file_is_uploaded_listed_shown_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my chats.jsonl");
    fs::write(&file, "{}\n").unwrap();
    let file = file.to_str().unwrap();
    let answer = (201, upload().to_string());
    let arguments = ["datasets", "upload", file, "--name=chats.jsonl"];
    let (output, script) = assay(&arguments, std::slice::from_ref(&answer)).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("--dataset upload:chats.jsonl"));
    assert_eq!(
        script.lock().unwrap().requests,
        ["PUT /datasets/chats.jsonl {}\n"]
    );

    let page = (200, json!({"items": [upload()], "next": null}).to_string());
    let (output, script) = assay(&["datasets", "list"], &[page]).await;
    let shown = text(&output.stdout);
    assert!(
        shown.contains("chats.jsonl") && shown.contains("4.1 kB"),
        "{shown}"
    );
    assert_eq!(
        script.lock().unwrap().requests,
        ["GET /datasets?limit=1000 "]
    );

    for (command, method) in [("show", "GET"), ("delete", "DELETE")] {
        let arguments = ["datasets", command, "chats.jsonl"];
        let (output, script) = assay(&arguments, &[(200, upload().to_string())]).await;
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(
            script.lock().unwrap().requests,
            [format!("{method} /datasets/chats.jsonl ")]
        );
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_sent_is_refused_here() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere.jsonl");
    let arguments = ["datasets", "upload", nowhere.to_str().unwrap()];
    let output = run(&arguments, "http://127.0.0.1:1").await;
    assert_eq!(output.status.code(), Some(1));
    let file = folder.path().join("my chats.jsonl");
    fs::write(&file, "").unwrap();
    let arguments = ["datasets", "upload", file.to_str().unwrap()];
    let output = run(&arguments, "http://127.0.0.1:1").await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--name"));
}

#[tokio::test]
async fn the_server_may_look() {
    let found = json!({
        "name": "d", "format": "jsonl", "digest": "sha256:0", "files": [], "documents": 1,
        "empty_documents": 0, "duplicate_documents": 0, "bytes": 4, "words": 1, "tokens": null,
        "counted_tokens": null,
        "lengths": {"unit": "bytes", "min": 4, "median": 4, "max": 4,
            "histogram": [{"from": 4, "to": 8, "documents": 1}]},
    });
    let arguments = [
        "datasets",
        "inspect",
        "d",
        "--remote",
        "--model=m",
        "--limit-documents=1",
    ];
    let (output, script) = assay(&arguments, &[(200, found.to_string())]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("4 - 7  1  █"));
    assert_eq!(
        script.lock().unwrap().requests,
        [r#"POST /datasets/inspect {"dataset":{"path":"d","limit_documents":1},"model":"m"}"#]
    );
}
