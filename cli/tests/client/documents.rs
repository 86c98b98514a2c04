//! Documents, tokens and archives.

use std::fs;

use serde_json::{Value, json};

use crate::stand_in::{ID, PROBLEM, assay, job, text};

const BASELINE: &str = "0192d3a4-0000-7000-8000-000000000002";

fn document(index: u64, nll: u64) -> Value {
    json!({
        "index": index, "tokens": 10, "scored_tokens": 10, "bytes": 40, "words": 8,
        "nll": nll, "nll_exact": (nll << 32).to_string(),
    })
}

fn page(items: &[Value], next: Option<&str>) -> (u16, String) {
    (200, json!({"items": items, "next": next}).to_string())
}

fn result(id: &str, digest: &str, window: u32) -> (u16, String) {
    let method = json!({"convention": "rolling", "window": window});
    let result = json!({
        "job_id": id, "complete": true, "model": null, "tokenizer": null, "method": method,
        "dtype": "float32", "device_kinds": ["cpu"], "version": "0.1.0", "numerics_version": 1,
        "datasets": [{
            "name": "d", "method": method, "digest": digest, "documents": 3,
            "unscored_documents": 0, "bytes": 120, "words": 24, "tokens": 30, "scored_tokens": 30,
            "nll": 60.0, "nll_exact": "257698037760", "perplexity": 7.389, "word_perplexity": null,
            "byte_perplexity": null, "bits_per_byte": null, "macro_perplexity": null,
            "standard_error": null, "confidence_95": null, "seconds": 1.0,
            "tokens_per_second": 30.0,
        }],
        "performance": {
            "tokens_per_second": null, "seconds": 1.0, "counted_tokens": 30, "computed_tokens": 30,
        },
        "warnings": [],
    });
    (200, result.to_string())
}

/// A job with this dataset.
fn job_of(state: &str, dataset: &Value, error: &str) -> (u16, String) {
    let mut of: Value = serde_json::from_str(&job(state, 30, error)).unwrap();
    of["datasets"] = json!([dataset]);
    (200, of.to_string())
}

fn named(name: &str) -> (u16, String) {
    let dataset = json!({"name": name, "path": "d.jsonl"});
    job_of("succeeded", &dataset, "null")
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
async fn documents_are_held_against_a_baseline() {
    let rows = |nll: [u64; 3]| {
        let rows: Vec<_> = (0..)
            .zip(nll)
            .map(|(index, nll)| document(index, nll))
            .collect();
        page(&rows, None)
    };
    let answers = [
        named("d"),
        result(ID, "sha256:1", 8),
        named("d"),
        result(BASELINE, "sha256:1", 8),
        rows([20, 25, 10]),
        rows([20, 15, 15]),
    ];
    let arguments = ["documents", ID, "--dataset=d", "--against", BASELINE];
    let (output, _) = assay(&arguments, &answers).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(shown.contains("+1.0000"), "{shown}");
    assert!(
        shown.contains("of 3 documents 1 got worse, 1 better, 1 stayed equal"),
        "{shown}"
    );

    let arguments = [&arguments[..], &["--json"]].concat();
    let (output, _) = assay(&arguments, &answers).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["items"][0]["index"], 1);
    assert_eq!(report["items"][0]["difference"], 1.0);
    assert_eq!(report["worse"], 1);
    assert_eq!(report.get("baseline_dataset"), None);

    // Under another name it is found by its digest.
    let renamed = |(status, result): (u16, String)| {
        let mut result: Value = serde_json::from_str(&result).unwrap();
        result["datasets"][0]["name"] = json!("e");
        (status, result.to_string())
    };
    let mut answers = answers.clone();
    answers[2] = named("e");
    answers[3] = renamed(result(BASELINE, "sha256:1", 8));
    let (output, script) = assay(&arguments, &answers).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["baseline_dataset"], "e");
    let path = format!("GET /jobs/{BASELINE}/documents?dataset=e&method=0&limit=10000 ");
    assert_eq!(script.lock().unwrap().requests[5], path);
    answers[3] = renamed(result(BASELINE, "sha256:2", 8));
    let (output, _) = assay(&arguments, &answers[..4]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("none of the same bytes"));

    // What a baseline had scored before it failed is good.
    answers[2] = job_of("failed", &json!({"name": "d", "path": "d.jsonl"}), FAILURE);
    answers[3] = result(BASELINE, "sha256:1", 8);
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("the baseline failed (E4003)"));
}

#[tokio::test]
async fn what_cannot_be_compared_is_exit_code_1() {
    let arguments = ["documents", ID, "--dataset=d", "--against", BASELINE];
    for (baseline, words) in [
        (result(BASELINE, "sha256:2", 8), "its digest differs"),
        (result(BASELINE, "sha256:1", 16), "no such method"),
    ] {
        let answers = [named("d"), result(ID, "sha256:1", 8), named("d"), baseline];
        let (output, _) = assay(&arguments, &answers).await;
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{errors}");
    }
}

#[tokio::test]
async fn another_choice_of_documents_is_not_compared() {
    let arguments = ["documents", ID, "--dataset=d", "--against", BASELINE];
    for (options, words) in [
        (
            json!({"sample": {"documents": 3, "seed": 7}}),
            "sample is none, in the baseline 3:7;",
        ),
        (
            json!({"limit_documents": 3}),
            "limit_documents is none, in the baseline 3;",
        ),
        (
            json!({"field": "body"}),
            "field is text, in the baseline body;",
        ),
    ] {
        let mut dataset = json!({"name": "d", "path": "d.jsonl"});
        let fields = dataset.as_object_mut().unwrap();
        fields.extend(options.as_object().unwrap().clone());
        let answers = [
            named("d"),
            result(ID, "sha256:1", 8),
            job_of("succeeded", &dataset, "null"),
            result(BASELINE, "sha256:1", 8),
        ];
        let (output, _) = assay(&arguments, &answers).await;
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{errors}");
    }
}

#[tokio::test]
async fn a_baseline_that_failed_is_not_waited_for() {
    let (status, unscored) = result(BASELINE, "sha256:1", 8);
    let mut unscored: Value = serde_json::from_str(&unscored).unwrap();
    unscored["complete"] = json!(false);
    unscored["datasets"][0]["nll"] = Value::Null;
    let dataset = json!({"name": "d", "path": "d.jsonl"});
    let arguments = ["documents", ID, "--against", BASELINE];
    for (state, error, words) in [
        ("failed", FAILURE, FAILED),
        ("cancelled", "null", "the baseline was cancelled"),
        ("running", "null", "wait until it has"),
    ] {
        let answers = [
            named("d"),
            result(ID, "sha256:1", 8),
            job_of(state, &dataset, error),
            (status, unscored.to_string()),
        ];
        let (output, _) = assay(&arguments, &answers).await;
        assert_eq!(output.status.code(), Some(1));
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{errors}");
    }
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
