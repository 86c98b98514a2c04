//! Commands that need no server.

use std::fs;

use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::stand_in::{run, text};

const NOBODY: &str = "http://127.0.0.1:1";

fn fits(shown: &str) {
    for line in shown.lines() {
        assert!(
            line.chars().count() <= 80,
            "wider than 80 columns:\n{shown}"
        );
    }
}

#[tokio::test]
async fn a_checkpoint_is_inspected() {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    let path = roots.models().join("llama_gqa");
    let path = path.to_str().unwrap();
    let output = run(&["inspect", path], NOBODY).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for fact in [
        "llama, 72,432 parameters",
        r#"BOS 1 "<s>""#,
        "512 tokens at most",
    ] {
        assert!(shown.contains(fact), "{shown}");
    }
    let output = run(&["inspect", path, "--json"], NOBODY).await;
    let facts: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(facts["parameters"], 72_432);

    let output = run(&["inspect", "/nonexistent"], NOBODY).await;
    assert_eq!(output.status.code(), Some(1));
}

#[tokio::test]
async fn a_dataset_is_inspected() {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    let lines: Vec<_> = (0..40)
        .map(|n| json!({"text": "a ".repeat(n), "lang": n % 2}).to_string())
        .collect();
    roots.add_data("d.jsonl", lines.join("\n"));
    let path = roots.data().join("d.jsonl");
    let path = path.to_str().unwrap();
    let arguments = ["datasets", "inspect", path, "--group-by=lang"];
    let output = run(&arguments, NOBODY).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    fits(shown.split_once("digest").unwrap().1);
    assert!(shown.contains("40 documents, 1 without text"), "{shown}");
    assert!(shown.contains("0 20, 1 20"), "{shown}");
    assert!(shown.contains("bytes in a document: 0 to 78"), "{shown}");

    let model = roots.models().join("llama_gqa");
    let arguments = [
        &arguments[..],
        &["--json", "--model", model.to_str().unwrap()],
    ]
    .concat();
    let output = run(&arguments, NOBODY).await;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["lengths"]["unit"], "tokens");
    assert!(found["tokens"].as_u64().unwrap() > 40);
}

#[tokio::test]
async fn what_cannot_be_inspected_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("d.jsonl");
    fs::write(&broken, "{\"text\": \"a\"}\n{").unwrap();
    let broken = broken.to_str().unwrap();
    for (arguments, code, words) in [
        (&[broken][..], 1, "2"),
        (&["/nonexistent/d.txt"], 1, "d.txt"),
        (&["upload:d"], 2, "--remote"),
        (&[broken, "--format=chat"], 2, "--model"),
    ] {
        let arguments = [&["datasets", "inspect"], arguments].concat();
        let output = run(&arguments, NOBODY).await;
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[tokio::test]
async fn completions_know_the_commands() {
    for shell in ["bash", "fish", "zsh"] {
        let output = run(&["completions", shell], NOBODY).await;
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("archive"));
    }
}

#[tokio::test]
async fn help_tells_the_exit_codes() {
    for command in [
        "up",
        "doctor",
        "submit",
        "jobs",
        "results",
        "documents",
        "tokens",
        "archive",
        "report",
        "cancel",
        "inspect",
        "profile",
        "datasets",
    ] {
        let output = run(&[command, "--help"], NOBODY).await;
        let help = text(&output.stdout);
        assert!(help.contains("Exit codes:"), "{command}: {help}");
    }
}
