//! Two jobs held against each other.

use serde_json::{Value, json};

use crate::stand_in::{BASELINE, ID, PROBLEM, assay, run, text};

/// A comparison of one dataset with this verdict, if one was asked for.
pub(crate) fn comparison(verdict: Option<&str>) -> Value {
    let mut row = json!({
        "name": "d.txt", "method": {"convention": "rolling", "window": 8}, "unit": "token",
        "documents": 40, "units": 1000, "baseline_mean_nll": 2.5, "candidate_mean_nll": 2.625,
        "difference": 0.125, "nll_difference_exact": "536870912000", "perplexity_ratio": 1.133_148,
        "standard_error": 0.002, "confidence_95": 0.004, "clusters": 40, "worse": 29, "better": 10,
        "equal": 1, "sign_test_p": 0.003_2, "best": [],
        "worst": [{
            "index": 7, "units": 25, "baseline_mean_nll": 2.0, "candidate_mean_nll": 2.75,
            "difference": 0.75,
        }],
    });
    let mut answer = json!({"baseline": BASELINE, "candidate": ID, "warnings": ["kinds differ"]});
    if let Some(verdict) = verdict {
        row["max_increase"] = json!(0.01);
        row["verdict"] = json!(verdict);
        row["reason"] = json!("so it is");
        answer["verdict"] = json!(verdict);
    }
    answer["datasets"] = json!([row]);
    answer
}

/// The body of the only request.
fn asked(script: &crate::stand_in::Shared) -> Value {
    let script = script.lock().unwrap();
    let [request] = script.requests.as_slice() else {
        panic!("{:?}", script.requests);
    };
    serde_json::from_str(request.strip_prefix("POST /comparisons ").unwrap()).unwrap()
}

#[tokio::test]
async fn a_comparison_is_asked_for_and_shown() {
    let answers = [(200, comparison(None).to_string())];
    let arguments = ["compare", ID, "--baseline", BASELINE];
    let (output, script) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let body = json!({"baseline": BASELINE, "candidate": ID, "documents": 10});
    assert_eq!(asked(&script), body);
    let shown = text(&output.stdout);
    for words in [
        "+0.125000",
        "0.004000",
        "+0.750000",
        "1.1331 times",
        "warning: kinds differ",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("verdict"), "{shown}");
    let wide = shown.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None, "{shown}");
}

#[tokio::test]
async fn every_option_is_in_the_request_and_a_verdict_is_no_exit_code() {
    let answer = comparison(Some("fail")).to_string();
    let arguments = [
        "compare",
        ID,
        "--baseline=branch:main",
        "--dataset=d.txt",
        "--dataset=e.txt",
        "--documents=0",
        "--max-increase=0.01",
    ];
    let answers = [(200, answer.clone())];
    let (output, script) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        asked(&script),
        json!({
            "baseline": {"tag": "branch:main"},
            "candidate": ID,
            "datasets": ["d.txt", "e.txt"],
            "max_increase": 0.01,
            "documents": 0,
        })
    );
    assert!(text(&output.stdout).contains("\nverdict     FAIL\n"));
    let (output, _) = assay(&[&arguments[..], &["--json"]].concat(), &answers).await;
    assert_eq!(text(&output.stdout).trim(), answer);
}

#[tokio::test]
async fn what_cannot_be_compared_is_a_refusal() {
    let refusal = PROBLEM.replace("422", "409").replace("E0003", "E0014");
    let arguments = ["compare", ID, "--baseline", BASELINE];
    let (output, _) = assay(&arguments, &[(409, refusal)]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("\n  dtype: no\n"));
}

#[tokio::test]
async fn wrong_options_are_named() {
    for (options, words) in [
        (vec![], "--baseline"),
        (vec!["--baseline=branch=main"], "KEY:VALUE"),
        (vec!["--baseline=a:b", "--documents=1001"], "1001"),
        (vec!["--baseline=a:b", "--max-increase", "-1"], "0 or more"),
    ] {
        let arguments = [&["compare", ID], options.as_slice()].concat();
        let output = run(&arguments, "http://127.0.0.1:1").await;
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let errors = text(&output.stderr);
        assert!(errors.contains(words), "{options:?}: {errors}");
    }
}
