//! Gates of pipelines.

use std::fs;

use serde_json::{Value, json};

use crate::compare::comparison;
use crate::stand_in::{BASELINE, ID, PROBLEM, Shared, assay, job, run, text};

const FAILURE: &str = r#"{"code": "E4003", "detail": "line 3 is not JSON"}"#;

fn succeeded() -> (u16, String) {
    (200, job("succeeded", 1000, "null"))
}

/// What `GET /jobs/{id}/gate` answers.
fn stored(verdict: Option<&str>, reason: &str, comparison: &Value) -> (u16, String) {
    let result = json!({
        "job_id": ID, "gate": {"baseline": BASELINE, "max_increase": 0.01}, "verdict": verdict,
        "reason": reason, "comparison": comparison,
    });
    (200, result.to_string())
}

/// The methods and paths that were asked for.
fn paths(script: &Shared) -> Vec<String> {
    let script = script.lock().unwrap();
    let requests = script.requests.iter();
    let paths = requests.map(|request| request.split(' ').take(2).collect::<Vec<_>>().join(" "));
    paths.collect()
}

#[tokio::test]
async fn the_gate_of_the_job_is_waited_for() {
    let judged = stored(Some("fail"), "so it is", &comparison(Some("fail")));
    let open = stored(None, "the job has not ended", &Value::Null);
    let answers = [
        open.clone(),
        (200, job("running", 500, "null")),
        succeeded(),
        open,
        (200, job("running", 500, "null")),
        succeeded(),
        judged.clone(),
    ];
    let (output, script) = assay(&["gate", ID], &answers).await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("assay: waiting for the job: "), "{errors}");
    assert!(
        errors.contains("assay: waiting for the baseline: "),
        "{errors}"
    );
    let shown = text(&output.stdout);
    let row = "FAIL          d.txt: +0.125000 ± 0.004000 nats per token";
    assert!(shown.starts_with(row), "{shown}");
    assert!(shown.ends_with("\nFAIL: 1 failed\n"), "{shown}");
    let asked = paths(&script);
    assert_eq!(asked[0], format!("GET /jobs/{ID}/gate"));
    assert_eq!(asked[4], format!("GET /jobs/{BASELINE}"));

    let (output, _) = assay(&["gate", ID, "--json"], std::slice::from_ref(&judged)).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).trim(), judged.1);
}

#[tokio::test]
async fn a_job_without_a_gate_is_said_at_once() {
    let detail = "gate: the job has none; give --baseline and --max-increase";
    let problem = json!({
        "type": "/errors#E0002", "title": "Not found", "status": 404, "code": "E0002",
        "detail": detail,
        "errors": [{"field": "gate", "detail": detail.strip_prefix("gate: ").unwrap()}],
    });
    let (output, _) = assay(&["gate", ID], &[(404, problem.to_string())]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains(detail));
}

#[tokio::test]
async fn the_verdict_of_a_given_gate_is_the_exit_code() {
    let arguments = [
        "gate",
        ID,
        "--max-increase=0.01",
        "--dataset=d.txt",
        "--baseline",
    ];
    for (verdict, code, last) in [
        ("pass", 0, "PASS: 1 passed"),
        ("fail", 1, "FAIL: 1 failed"),
        ("inconclusive", 2, "INCONCLUSIVE: 1 inconclusive"),
    ] {
        let compared = (200, comparison(Some(verdict)).to_string());
        let answers = [succeeded(), succeeded(), compared.clone()];
        let (output, script) = assay(&[&arguments[..], &[BASELINE]].concat(), &answers).await;
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout).lines().last(), Some(last));
        let body = script.lock().unwrap().requests[2].clone();
        let body = body.strip_prefix("POST /comparisons ").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(body).unwrap(),
            json!({
                "baseline": BASELINE, "candidate": ID, "datasets": ["d.txt"],
                "max_increase": 0.01, "documents": 10,
            })
        );

        // A tag names no job to wait for.
        let arguments = [&arguments[..], &["branch:main", "--json"]].concat();
        let (output, _) = assay(&arguments, &[succeeded(), compared]).await;
        assert_eq!(output.status.code(), Some(code));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(printed["verdict"], verdict);
        assert_eq!(printed["gate"]["baseline"], BASELINE);
        assert_eq!(printed["comparison"], comparison(Some(verdict)));
    }
}

#[tokio::test]
async fn jobs_that_cannot_be_compared_are_inconclusive() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gate.xml");
    let junit = format!("--junit={}", file.display());
    let refusal = PROBLEM.replace("422", "409").replace("E0003", "E0014");
    let baseline = format!("--baseline={BASELINE}");
    let arguments = ["gate", ID, &baseline, "--max-increase=0.01", &junit];
    let answers = [succeeded(), succeeded(), (409, refusal)];
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "INCONCLUSIVE  model: no such file\nINCONCLUSIVE  dtype: no\n\
         INCONCLUSIVE: the jobs cannot be compared\n"
    );
    let written = fs::read_to_string(&file).unwrap();
    assert!(
        written.contains(r#"tests="1" skipped="0" failures="0" errors="1""#),
        "{written}"
    );
    assert!(written.contains("\ndtype: no</error>"), "{written}");

    // Any other refusal is no verdict, and writes none.
    fs::remove_file(&file).unwrap();
    let answers = [succeeded(), succeeded(), (422, PROBLEM.to_owned())];
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_job_that_did_not_succeed_is_inconclusive() {
    let baseline = format!("--baseline={BASELINE}");
    let arguments = ["gate", ID, &baseline, "--max-increase=0"];
    let failed = (200, job("failed", 0, FAILURE));
    let cancelled = (200, job("cancelled", 0, "null"));
    for (answers, why) in [
        (
            [failed, succeeded()],
            "the job failed (E4003): line 3 is not JSON",
        ),
        ([succeeded(), cancelled], "the baseline was cancelled"),
    ] {
        let (output, _) = assay(&arguments, &answers).await;
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), format!("INCONCLUSIVE: {why}\n"));
    }
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_said_before_anything_is_asked() {
    let arguments = ["gate", ID, "--junit=/nowhere/gate.xml"];
    let (output, _) = assay(&arguments, &[]).await;
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(
        errors.contains("cannot write /nowhere/gate.xml"),
        "{errors}"
    );
}

#[tokio::test]
async fn a_baseline_and_a_limit_belong_together() {
    for (arguments, words) in [
        (vec!["gate", ID, "--baseline=a:b"], "--max-increase"),
        (vec!["gate", ID, "--max-increase=0.01"], "--baseline"),
        (vec!["gate", ID, "--dataset=d"], "--baseline"),
        (
            vec!["submit", "--model=m", "--dataset=d", "--gate-baseline=a:b"],
            "--max-increase",
        ),
        (
            vec!["submit", "--model=m", "--dataset=d", "--max-increase=0"],
            "--gate-baseline",
        ),
    ] {
        let output = run(&arguments, "http://127.0.0.1:1").await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}
