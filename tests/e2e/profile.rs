//! `assay profile` with the real programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use assay_testkit::{LIMIT, Program, Roots, Signal, children, eventually, fixture, is_running};
use serde_json::Value;

use crate::reference::{expected, text};
use crate::service::program_of_assay;

const MODEL: &str = "llama_gqa";
/// Of a method that scores every token once.
const WINDOW: &str = "16";
const STAGES: [&str; 16] = [
    "products",
    "attention",
    "norm",
    "rotary",
    "activation",
    "embedding",
    "head",
    "loss",
    "scoring",
    "open",
    "tokenize",
    "plan",
    "load",
    "claim",
    "commit",
    "other",
];

/// Its folder for what it starts is below `temporary`.
fn profile(dataset: &Path, temporary: &Path) -> Command {
    let mut command = program_of_assay("assay");
    command
        .args([
            "profile",
            "--window",
            WINDOW,
            "--devices",
            "cpu:0",
            "--json",
        ])
        .arg("--model")
        .arg(fixture(MODEL))
        .arg("--dataset")
        .arg(dataset)
        .env("TMPDIR", temporary);
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

fn seconds(run: &Value, stage: &str) -> f64 {
    let stages = run["stages"].as_array().unwrap();
    let found = stages.iter().find(|found| found["stage"] == stage);
    found.unwrap()["seconds"].as_f64().unwrap()
}

#[tokio::test]
async fn both_runs_are_told_stage_by_stage() {
    let roots = Roots::new();
    let reference = expected(MODEL);
    let dataset = roots.add_data("a.txt", text(&reference, "long"));
    let tokens = reference["tokens"]["long"]["without_special"]
        .as_array()
        .unwrap()
        .len();

    let mut running = Program::start(profile(&dataset, &roots.state()));
    let status = running.ended_within(LIMIT).await;
    let output = running.rest_of_output().await.join("\n");
    assert_eq!(status.code(), Some(0), "{output}");
    let profiled: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(profiled["planned_tokens"], tokens);
    assert_eq!(profiled["dtype"], "float32");
    for name in ["first", "second"] {
        let run = &profiled[name];
        assert_eq!(
            (&run["tokens"], &run["devices"]),
            (&tokens.into(), &1.into())
        );
        let stages = run["stages"].as_array().unwrap();
        let names: Vec<_> = stages.iter().map(|stage| &stage["stage"]).collect();
        assert_eq!(names, STAGES);
        let number = |field: &str| run[field].as_f64().unwrap();
        let shares = stages.iter().map(|stage| stage["share"].as_f64().unwrap());
        let sum: f64 = shares.inspect(|share| assert!(*share >= 0.0)).sum();
        assert!((sum - 1.0).abs() < 1e-3, "{sum}: {run}");
        // Activation and loss may be part of products and head.
        for stage in [
            "embedding",
            "norm",
            "products",
            "rotary",
            "attention",
            "head",
            "plan",
            "claim",
            "commit",
        ] {
            assert!(seconds(run, stage) > 0.0, "{stage}: {run}");
        }
        let scored: f64 = STAGES[..9].iter().map(|stage| seconds(run, stage)).sum();
        let scoring = number("scoring_seconds");
        assert!((scored - scoring).abs() < 1e-6, "{scored}: {run}");
        assert!(scoring < number("seconds"), "{run}");
        let rate = tokens as f64 / number("seconds");
        assert!(
            (number("tokens_per_second") / rate - 1.0).abs() < 1e-9,
            "{run}"
        );
        let ratio = number("floor_ratio");
        assert!(ratio > 0.0 && ratio <= 1.5, "{run}");
    }
    // The second finds the model where the first has put it.
    let loading = |name: &str| seconds(&profiled[name], "load");
    assert!(loading("second") < loading("first"), "{profiled}");
    assert!(is_empty(&roots.state()));
}

#[tokio::test]
async fn what_is_wrong_is_said_before_anything_is_started() {
    let roots = Roots::new();
    let dataset = roots.data().join("nothing.txt");
    let output = profile(&dataset, &roots.state())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("nothing.txt: No such file"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(is_empty(&roots.state()));
}

/// A job that a worker refuses, and one that nobody waits for any more.
#[tokio::test]
async fn a_profile_without_an_end_leaves_nothing() {
    let roots = Roots::new();
    let empty = roots.add_data("empty.txt", "");
    let mut running = Program::start(profile(&empty, &roots.state()));
    assert_eq!(running.ended_within(LIMIT).await.code(), Some(1));
    assert_eq!(running.rest_of_output().await, [""; 0]);
    assert!(is_empty(&roots.state()));

    let large = roots.add_data("large.txt", "Call me Ishmael. ".repeat(100_000));
    let mut running = Program::start(profile(&large, &roots.state()));
    let family = eventually("database, server and worker", LIMIT, async || {
        let family = children(running.pid());
        (family.len() == 3).then_some(family)
    })
    .await;
    running.signal(Signal::INT);
    assert_eq!(running.ended_within(LIMIT).await.code(), Some(130));
    assert_eq!(running.rest_of_output().await, [""; 0]);
    let left: Vec<_> = family.iter().filter(|one| is_running(one.pid)).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(is_empty(&roots.state()));
}
