//! `assay plan`.

use std::fs;

use serde_json::{Value, json};

use crate::stand_in::{PROBLEM, assay, run, text};

fn compared() -> String {
    let strategy = |name: &str, seconds: [f64; 2], over: f64| {
        json!({
            "strategy": name,
            "device_seconds": seconds,
            "seconds": {"max": seconds[0], "mean": 10.0, "standard_deviation": 1.25},
            "over_lower_bound": over,
        })
    };
    json!({
        "documents": 1014,
        "windows": 2113,
        "scored_tokens": 51_234,
        "flops": 1.378e13,
        "shards": 231,
        "lower_bound_seconds": 10.0,
        "strategies": [
            strategy("random", [15.0, 5.0], 1.5),
            strategy("even", [20.0, 0.0], 2.0),
            strategy("length", [11.0, 9.0], 1.1),
            strategy("dynamic", [10.1, 9.9], 1.01),
        ],
    })
    .to_string()
}

#[tokio::test]
async fn a_job_is_compared_on_devices_and_not_posted() {
    let arguments = [
        "plan",
        "--model=m",
        "--dataset=d.jsonl",
        "--limit-documents=9",
        "--method=blocks,window=64",
        "--device=1200",
        "--device=old=1x900",
        "--seed=7",
    ];
    let (output, script) = assay(&arguments, &[(200, compared())]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let script = script.lock().unwrap();
    let body = script.requests[0].strip_prefix("POST /plans ").unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(body).unwrap(),
        json!({
            "job": {
                "model": "m",
                "datasets": [{"path": "d.jsonl", "limit_documents": 9}],
                "method": {"convention": "blocks", "window": 64},
                "dtype": "auto",
            },
            "devices": [
                {"tokens_per_second": 1200.0, "count": 1},
                {"name": "old", "tokens_per_second": 900.0, "count": 1},
            ],
            "seed": 7,
        })
    );
    let shown = text(&output.stdout);
    println!("{shown}");
    for part in [
        "1 of 2",
        "+1.0 %",
        "1,014 documents, 2,113 windows, 51,234 tokens",
        "231 shards",
        "old: 1 device of 900 tokens/s",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
}

#[tokio::test]
async fn the_job_may_come_from_a_file_and_the_answer_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.json");
    let gate = r#"{"baseline": {"tag": "branch:main"}, "max_increase": 0.01}"#;
    let job = format!(r#"{{"model": "m", "datasets": ["d"], "gate": {gate}}}"#);
    fs::write(&file, job).unwrap();
    let file = format!("--file={}", file.display());
    let arguments = ["plan", &file, "--device=4x1200", "--json"];
    let (output, script) = assay(&arguments, &[(200, compared())]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim(), compared());
    let asked = script.lock().unwrap().requests[0].clone();
    assert!(!asked.contains("gate"), "{asked}");
}

#[tokio::test]
async fn what_cannot_be_asked_or_is_refused_is_said() {
    let good = ["plan", "--model=m", "--dataset=d"];
    for device in [&[][..], &["--device=fast"], &["--device=4x"]] {
        let output = run(&[&good[..], device].concat(), "http://127.0.0.1:1").await;
        assert_eq!(output.status.code(), Some(2), "{device:?}");
    }
    let arguments = [&good[..], &["--device=4x1200"]].concat();
    let (output, _) = assay(&arguments, &[(422, PROBLEM.to_owned())]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("model: no such file"));
}
