//! What `assay submit` makes of its options.

use std::fs;

use serde_json::{Value, json};

use crate::stand_in::{ID, assay, job, result, run, text};

/// The bodies that `assay submit` posts with these options, and the idempotency keys.
async fn posted(arguments: &[&str], jobs: usize) -> (Vec<Value>, Vec<String>) {
    let arguments = [&["submit"], arguments].concat();
    let answers = vec![(201, job("queued", 0, "null")); jobs];
    let (output, script) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{ID}\n").repeat(jobs));
    let script = script.lock().unwrap();
    let bodies = script.requests.iter().map(|request| {
        let body = request.strip_prefix("POST /jobs ").unwrap();
        serde_json::from_str(body).unwrap()
    });
    (bodies.collect(), script.keys.clone())
}

#[tokio::test]
async fn datasets_and_methods_have_their_short_forms() {
    let arguments = [
        "--model=m",
        "--dataset=chats=c.jsonl",
        "--dataset=upload:u.parquet",
        r#"--dataset={"path": "a=b.txt", "limit_tokens": 5}"#,
        "--method=blocks,tail=score",
        r"--method=strided,window=64,stride=8,join=\n,bos=never",
        "--window=128",
        "--sample=10:7",
        "--group-by=lang",
        "--token-output",
        "--no-reuse",
    ];
    let (bodies, _) = posted(&arguments, 1).await;
    let sample = json!({"documents": 10, "seed": 7});
    assert_eq!(
        bodies[0],
        json!({
            "model": "m",
            "datasets": [
                {"name": "chats", "path": "c.jsonl", "group_by": "lang", "sample": sample},
                {"upload": "u.parquet", "group_by": "lang", "sample": sample},
                {"path": "a=b.txt", "limit_tokens": 5},
            ],
            "method": [
                {"convention": "blocks", "window": 128, "tail": "score"},
                {
                    "convention": "strided",
                    "window": 64,
                    "stride": 8,
                    "join": "\n",
                    "bos": "never",
                },
            ],
            "dtype": "auto",
            "token_output": true,
            "reuse": false,
        })
    );
}

#[tokio::test]
async fn how_a_job_is_run_is_said_only_where_it_is_asked() {
    let job = ["--model=m", "--dataset=d"];
    let how = ["--priority=-5", "--audit=0.25", "--baseline=measure"];
    let (bodies, _) = posted(&[job, [how[0], how[1]]].concat(), 1).await;
    assert_eq!(
        (&bodies[0]["priority"], &bodies[0]["audit"]),
        (&json!(-5), &json!(0.25))
    );
    assert!(bodies[0].get("baseline").is_none());
    let (bodies, _) = posted(&[&job[..], &how].concat(), 1).await;
    assert_eq!(bodies[0]["baseline"], json!("measure"));
    let (bodies, _) = posted(&[&job[..], &["--run-seconds=60"]].concat(), 1).await;
    assert_eq!(bodies[0]["deadlines"], json!({"run_seconds": 60}));
    let (bodies, _) = posted(&job, 1).await;
    for field in ["priority", "audit", "baseline", "deadlines"] {
        assert!(bodies[0].get(field).is_none(), "{field}");
    }
}

#[tokio::test]
async fn each_job_gets_the_gate() {
    let gate = ["--gate-baseline=branch:main", "--max-increase=0.01"];
    let arguments = [&["--model=a", "--model=b", "--dataset=d"][..], &gate].concat();
    let (bodies, _) = posted(&arguments, 2).await;
    let expected = json!({"baseline": {"tag": "branch:main"}, "max_increase": 0.01});
    assert_eq!(
        (&bodies[0]["gate"], &bodies[1]["gate"]),
        (&expected, &expected)
    );
    let gate = [
        format!("--gate-baseline={ID}"),
        "--max-increase=0".to_owned(),
    ];
    let arguments = ["--model=a", "--dataset=d", &gate[0], &gate[1]];
    let (bodies, _) = posted(&arguments, 1).await;
    assert_eq!(
        bodies[0]["gate"],
        json!({"baseline": ID, "max_increase": 0.0})
    );
}

#[tokio::test]
async fn each_model_gets_a_job_under_a_key_of_its_own() {
    let arguments = [
        "--model=a",
        "--model=b",
        "--dataset=d.jsonl",
        "--idempotency-key=night",
        "--format=chat",
        "--score=all",
        "--field=turns",
    ];
    let (bodies, keys) = posted(&arguments, 2).await;
    assert_eq!(
        (&bodies[0]["model"], &bodies[1]["model"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(
        bodies[1]["datasets"],
        json!([{"path": "d.jsonl", "format": "chat", "score": "all", "field": "turns"}])
    );
    assert_eq!(keys, ["night-1", "night-2"]);
    let (_, keys) = posted(&["--model=a", "--dataset=d", "--idempotency-key=k"], 1).await;
    assert_eq!(keys, ["k"]);
}

#[tokio::test]
async fn options_override_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.json");
    let written = json!({
        "model": "m",
        "name": "from the file",
        "datasets": ["a.jsonl", {"path": "b.jsonl", "field": "body"}],
        "method": {"convention": "blocks", "window": 64},
        "tags": {"a": "1", "b": "2"},
    });
    fs::write(&file, written.to_string()).unwrap();
    let file = format!("--file={}", file.display());
    let (bodies, _) = posted(&[&file], 1).await;
    let mut expected = written.clone();
    expected["datasets"][0] = json!({"path": "a.jsonl"});
    expected["dtype"] = json!("auto");
    assert_eq!(bodies[0], expected);

    let arguments = [
        &file,
        "--name=mine",
        "--window=32",
        "--tag=b=3",
        "--dtype=float32",
        "--limit-documents=9",
    ];
    let (bodies, _) = posted(&arguments, 1).await;
    expected["name"] = json!("mine");
    expected["method"]["window"] = json!(32);
    expected["tags"]["b"] = json!("3");
    expected["dtype"] = json!("float32");
    expected["datasets"][0]["limit_documents"] = json!(9);
    assert_eq!(bodies[0], expected);

    let arguments = [&file, "--model=x", "--dataset=c", "--method=llamacpp"];
    let (bodies, _) = posted(&arguments, 1).await;
    assert_eq!(bodies[0]["model"], json!("x"));
    assert_eq!(bodies[0]["datasets"], json!([{"path": "c"}]));
    assert_eq!(bodies[0]["method"], json!({"convention": "llamacpp"}));
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.json");
    let argument = format!("--file={}", file.display());
    for (written, words) in [
        ("{", "is not the JSON object of a job"),
        (r#"{"datasets": ["d"]}"#, "missing field `model`"),
        (
            r#"{"model": "m", "datasets": [{"pth": "d"}]}"#,
            "datasets[0]",
        ),
        (r#"{"model": "m", "datasets": ["d"], "widow": 8}"#, "widow"),
    ] {
        fs::write(&file, written).unwrap();
        let output = run(&["submit", &argument], "http://127.0.0.1:1").await;
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{written}: {errors}");
        assert!(errors.contains(words), "{written}: {errors}");
    }
    let dataset = r#"--dataset={"path": "d"}"#;
    let arguments = ["submit", "--model=m", dataset, "--field=x"];
    let output = run(&arguments, "http://127.0.0.1:1").await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no dataset to which"));
    fs::remove_file(&file).unwrap();
    let output = run(&["submit", &argument], "http://127.0.0.1:1").await;
    assert_eq!(output.status.code(), Some(1), "a file that cannot be read");
}

#[tokio::test]
async fn several_models_end_in_one_table_and_one_failure_is_exit_code_1() {
    let arguments = [
        "submit",
        "--model=a",
        "--model=b",
        "--model=c",
        "--dataset=d",
        "--wait",
    ];
    let queued = (201, job("queued", 0, "null"));
    let failure = r#"{"code": "E5001", "detail": "the checkpoint is damaged"}"#;
    let answers = [
        queued.clone(),
        queued.clone(),
        queued,
        (200, job("succeeded", 1000, "null")),
        (200, job("failed", 0, failure)),
        (200, job("succeeded", 1000, "null")),
        (200, result()),
        (200, result()),
    ];
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).matches('┌').count(), 1);
    assert!(text(&output.stderr).contains("the checkpoint is damaged"));
}

#[tokio::test]
async fn a_webhook_takes_its_secret_from_a_file() {
    let job = ["--model=m", "--dataset=d", "--webhook=https://ci.example/x"];
    let (bodies, _) = posted(&job, 1).await;
    assert_eq!(bodies[0]["webhook"], json!({"url": "https://ci.example/x"}));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    fs::write(&file, "whsec_c2VjcmV0\n").unwrap();
    let file = format!("--webhook-secret-file={}", file.display());
    let (bodies, _) = posted(&[&job[..], &[&file]].concat(), 1).await;
    assert_eq!(
        bodies[0]["webhook"],
        json!({"url": "https://ci.example/x", "secret": "whsec_c2VjcmV0"})
    );
}

#[tokio::test]
async fn a_secret_that_the_service_made_is_shown_on_stderr() {
    let mut made: Value = serde_json::from_str(&job("queued", 0, "null")).unwrap();
    made["webhook"] = json!({"url": "https://ci.example/x", "secret": "whsec_made"});
    let arguments = [
        "submit",
        "--model=m",
        "--dataset=d",
        "--webhook=https://ci.example/x",
    ];
    let (output, _) = assay(&arguments, &[(201, made.to_string())]).await;
    assert_eq!(text(&output.stdout), format!("{ID}\n"));
    let said = text(&output.stderr);
    assert!(
        said.contains("webhook secret of") && said.contains("whsec_made"),
        "{said}"
    );
    // The answer was lost on its way, and comes again without it.
    made["webhook"] = json!({"url": "https://ci.example/x"});
    let (output, _) = assay(&arguments, &[(200, made.to_string())]).await;
    assert!(text(&output.stderr).contains("is not shown again"));
}
