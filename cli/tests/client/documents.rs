//! Documents, tokens and archives.

use std::fs;

use serde_json::{Value, json};

use crate::stand_in::{ID, PROBLEM, assay, job, text};

fn document(index: u64, nll: u64) -> Value {
    json!({
        "index": index, "tokens": 10, "scored_tokens": 10, "bytes": 40, "words": 8,
        "nll": nll, "nll_exact": (nll << 32).to_string(),
    })
}

fn page(items: &[Value], next: Option<&str>) -> (u16, String) {
    (200, json!({"items": items, "next": next}).to_string())
}

/// A job with a dataset of this name.
fn named(name: &str) -> (u16, String) {
    let mut of: Value = serde_json::from_str(&job("succeeded", 30, "null")).unwrap();
    of["datasets"] = json!([{"name": name, "path": "d.jsonl"}]);
    (200, of.to_string())
}

const FAILURE: &str =
    r#"{"code": "E4003", "detail": "line 3 is not JSON", "field": "datasets[0]"}"#;
const FAILED: &str = " failed (E4003): datasets[0]: line 3 is not JSON\n";

#[tokio::test]
async fn pages_of_documents_become_one_list() {
    let answers = [
        named("a b"),
        page(&[document(0, 20), document(1, 30)], Some("2")),
        page(&[document(2, 10)], None),
    ];
    let arguments = ["documents", ID, "--dataset=a b", "--method=1", "--json"];
    let (output, script) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
    assert_eq!(list["items"][2], document(2, 10));
    assert_eq!(list["next"], Value::Null);
    let path = format!("GET /jobs/{ID}/documents?dataset=a+b&method=1&limit=10000");
    assert_eq!(
        script.lock().unwrap().requests,
        [
            format!("GET /jobs/{ID} "),
            format!("{path} "),
            format!("{path}&cursor=2 ")
        ]
    );
}

#[tokio::test]
async fn the_worst_documents_of_the_only_dataset_are_a_table() {
    let answers = [
        (200, job("succeeded", 1000, "null")),
        page(&[document(7, 30)], Some("8")),
    ];
    let (output, script) = assay(&["documents", ID, "--worst=1"], &answers).await;
    let shown = text(&output.stdout);
    assert!(
        shown.contains("3.0000") && shown.contains("20.0855"),
        "{shown}"
    );
    assert!(!shown.contains("there are more"), "{shown}");
    assert_eq!(
        script.lock().unwrap().requests[1],
        format!("GET /jobs/{ID}/documents?dataset=d.txt&method=0&order=worst&limit=1 ")
    );
}

#[tokio::test]
async fn the_lists_of_a_failed_job_say_why_it_failed() {
    let failed = (200, job("failed", 0, FAILURE));
    for command in ["documents", "tokens"] {
        let answers = [failed.clone(), page(&[], None)];
        let (output, _) = assay(&[command, ID], &answers).await;
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), format!("assay: the job{FAILED}"));
        assert_eq!(text(&output.stdout), "");
        let (output, _) = assay(&[command, ID, "--json"], &answers).await;
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text(&output.stderr), format!("assay: the job{FAILED}"));
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(list, json!({"items": [], "next": null}));

        let answers = [(200, job("running", 0, "null")), page(&[], None)];
        let (output, _) = assay(&[command, ID], &answers).await;
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("yet: they are listed when"));
    }
    let answers = [failed, page(&[document(0, 20)], None)];
    let (output, _) = assay(&["documents", ID], &answers).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("2.0000"), "what has ended");
}

#[tokio::test]
async fn a_method_may_be_named_by_its_convention() {
    let mut of: Value = serde_json::from_str(&job("succeeded", 30, "null")).unwrap();
    of["method"] = json!([
        {"convention": "rolling", "window": 8},
        {"convention": "blocks", "window": 8},
    ]);
    for command in ["documents", "tokens"] {
        let answers = [(200, of.to_string()), page(&[], None)];
        let (_, script) = assay(&[command, ID, "--method=blocks"], &answers).await;
        let request = script.lock().unwrap().requests[1].clone();
        assert!(request.contains("&method=1&"), "{request}");
        let arguments = [command, ID, "--method=strided"];
        let (output, _) = assay(&arguments, &answers[..1]).await;
        assert_eq!(output.status.code(), Some(2));
    }
}

#[tokio::test]
async fn tokens_are_listed() {
    let tokens = [
        json!({"index": 0, "id": 5, "start": 0, "end": 4, "nll": null, "nll_exact": null}),
        json!({"index": 1, "id": 6, "start": 4, "end": 9, "nll": 0.5, "nll_exact": "2147483648"}),
    ];
    let arguments = ["tokens", ID, "--dataset=d", "--document=3", "--limit=2"];
    let answers = [named("d"), page(&tokens, Some("x"))];
    let (output, script) = assay(&arguments, &answers).await;
    let shown = text(&output.stdout);
    assert!(
        shown.contains("0.5000") && shown.contains("0.6065"),
        "{shown}"
    );
    assert!(shown.contains("there are more"), "{shown}");
    assert_eq!(
        script.lock().unwrap().requests,
        [
            format!("GET /jobs/{ID} "),
            format!("GET /jobs/{ID}/tokens?dataset=d&document=3&method=0&limit=2 ")
        ]
    );
    let answers = [named("d"), (422, PROBLEM.to_owned())];
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test]
async fn a_report_is_saved_under_the_id_of_its_job() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let page = "<!DOCTYPE html><title>m</title>";
    let arguments = ["report", ID, "--output", place, "--json"];
    let (output, script) = assay(&arguments, &[(200, page.to_owned())]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = format!("GET /jobs/{ID}/report ");
    assert_eq!(script.lock().unwrap().requests, [expected]);
    let saved = dir.path().join(format!("{ID}.html"));
    assert_eq!(std::fs::read_to_string(&saved).unwrap(), page);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["bytes"], page.len());
    assert_eq!(told["file"], saved.to_str().unwrap());
}

#[tokio::test]
async fn an_archive_is_saved_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let arguments = ["archive", ID, "--output", place];
    let (output, _) = assay(&arguments, &[(200, "PK".to_owned())]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let file = folder.path().join(format!("{ID}.zip"));
    assert_eq!(fs::read(&file).unwrap(), b"PK");
    assert_eq!(text(&output.stdout), format!("{} (2 B)\n", file.display()));

    fs::remove_file(&file).unwrap();
    let (output, _) = assay(&arguments, &[(422, PROBLEM.to_owned())]).await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
