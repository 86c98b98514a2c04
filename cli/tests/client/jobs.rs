//! Jobs: posted, followed, listed, cancelled.

use std::process::Stdio;

use axum::Router;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::stand_in::{ID, PROBLEM, assay, job, result, run, text};

#[tokio::test]
async fn a_job_is_posted_as_asked_and_its_id_printed() {
    let arguments = [
        "submit",
        "--model",
        "m",
        "--dataset",
        "a.txt",
        "--dataset",
        "b.jsonl",
        "--name",
        "n",
        "--window",
        "64",
        "--dtype",
        "bfloat16",
        "--tag",
        "k=v",
        "--limit-tokens",
        "10",
    ];
    let (output, script) = assay(&arguments, &[(201, job("queued", 0, "null"))]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{ID}\n"));
    assert_eq!(
        script.lock().unwrap().requests,
        [
            r#"POST /jobs {"name":"n","model":"m","datasets":[{"path":"a.txt","limit_tokens":10},{"path":"b.jsonl","limit_tokens":10}],"method":{"convention":"rolling","window":64},"dtype":"bfloat16","tags":{"k":"v"}}"#
        ]
    );
}

#[tokio::test]
async fn a_job_is_followed_over_an_interruption_to_its_table() {
    let unavailable = PROBLEM.replace("422", "503").replace("E0003", "E0009");
    let (output, script) = assay(
        &["submit", "--model", "m", "--dataset", "d.txt", "--wait"],
        &[
            (503, unavailable.clone()),
            (201, job("queued", 0, "null")),
            (200, job("running", 500, "null")),
            (502, "<html>".to_owned()),
            (503, unavailable),
            (200, job("succeeded", 1000, "null")),
            (200, result()),
        ],
    )
    .await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.contains("running: 500 of 1,000 tokens"), "{errors}");
    assert!(errors.contains("trying again"), "{errors}");
    let shown = text(&output.stdout);
    assert!(shown.starts_with(&format!("{ID}\n┌")), "{shown}");
    assert!(shown.contains("warning: few clusters"), "{shown}");
    let script = script.lock().unwrap();
    assert_eq!(script.keys.len(), 2);
    assert_eq!(script.keys[0], script.keys[1]);
    assert_eq!(
        script.requests.last().unwrap().trim(),
        format!("GET /jobs/{ID}/results")
    );
}

#[tokio::test]
async fn a_job_that_nobody_takes_up_is_explained() {
    let mut waits: Value = serde_json::from_str(&job("queued", 0, "null")).unwrap();
    waits["waiting"] = json!({"code": "no_worker", "detail": "no worker is live; start one"});
    let mut answers = vec![(201, job("queued", 0, "null"))];
    answers.extend(vec![(200, waits.to_string()); 6]);
    answers.extend([(200, job("succeeded", 1000, "null")), (200, result())]);
    let arguments = ["submit", "--model", "m", "--dataset", "d.txt", "--wait"];
    let (output, _) = assay(&arguments, &answers).await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let said = errors.matches("the job waits: no worker is live; start one");
    assert_eq!(said.count(), 1, "{errors}");
}

#[tokio::test]
async fn a_list_says_what_jobs_wait_for() {
    let mut waits: Value = serde_json::from_str(&job("queued", 0, "null")).unwrap();
    waits["waiting"] = json!({"code": "no_worker_in_service", "detail": "see GET /workers"});
    let page = json!({"items": [waits], "next": null}).to_string();
    let (output, _) = assay(&["jobs"], &[(200, page)]).await;
    assert!(text(&output.stdout).contains("no_worker_in_service"));
}

#[tokio::test]
async fn a_job_that_does_not_succeed_is_exit_code_1() {
    let error = r#"{"code": "E4003", "detail": "line 3 is not JSON", "field": "datasets[0]"}"#;
    let failed = job("failed", 0, error);
    let answers = [(201, job("queued", 0, "null")), (200, failed.clone())];
    let arguments = [
        "submit",
        "--model",
        "m",
        "--dataset",
        "d.txt",
        "--wait",
        "--json",
    ];
    let (output, _) = assay(&arguments, &answers).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).trim(), failed);
    let errors = text(&output.stderr);
    assert!(
        errors.contains("the job failed (E4003): datasets[0]: line 3 is not JSON"),
        "{errors}"
    );
}

#[tokio::test]
async fn a_refusal_is_exit_code_3_with_a_line_for_each_field() {
    let (output, _) = assay(
        &["submit", "--model", "m", "--dataset", "d"],
        &[(422, PROBLEM.to_owned())],
    )
    .await;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        text(&output.stderr),
        "assay: Invalid request (E0003): 2 fields are wrong\n  model: no such file\n  dtype: no\n"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_exit_code_3_at_once() {
    // The port was free a moment ago, and nobody listens on it.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = run(&["jobs"], &server).await;
    assert_eq!(output.status.code(), Some(3));
    let errors = text(&output.stderr);
    assert!(
        errors.contains(&server) && errors.contains("assay up"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let output = run(&["jobs"], "not a url").await;
    assert_eq!(output.status.code(), Some(3));
}

#[tokio::test]
async fn another_server_is_told_apart() {
    let (output, _) = assay(&["results", ID], &[(404, "<html>".to_owned())]).await;
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("an Assay server?"));
}

#[tokio::test]
async fn jobs_are_listed_and_cancelled() {
    let page = format!(
        r#"{{"items": [{}], "next": null}}"#,
        job("running", 500, "null")
    );
    let (output, script) = assay(
        &["jobs", "--state", "running", "--limit", "5"],
        &[(200, page)],
    )
    .await;
    assert_eq!(
        script.lock().unwrap().requests,
        ["GET /jobs?limit=5&state=running "]
    );
    let shown = text(&output.stdout);
    assert!(shown.contains(ID) && shown.contains("50 %"), "{shown}");

    let (output, script) = assay(&["cancel", ID], &[(200, job("cancelled", 500, "null"))]).await;
    assert_eq!(
        script.lock().unwrap().requests,
        [format!("DELETE /jobs/{ID} ")]
    );
    assert_eq!(text(&output.stdout), format!("{ID} cancelled\n"));
}

#[tokio::test]
async fn results_have_the_speed_and_on_request_the_devices() {
    let performance = r#""tokens_per_second": 700.0, "seconds": 1.0, "counted_tokens": 1000,
        "computed_tokens": 1000, "distributed_tokens_per_second": 780.0, "speedup": 1.95,
        "efficiency": 0.975, "communication_share": 0.003,
        "baseline": {"source": "calibrated", "tokens_per_second": 400.0, "device_kind": "cpu"},
        "devices": [{"worker": "host-1/2", "device": "cpu:0", "device_kind": "cpu", "shards": 12,
            "tokens": 24576, "busy_seconds": 61.25, "claim_seconds": 0.04,
            "commit_seconds": 0.05, "load_seconds": 2.1, "idle_seconds": 0.5}]"#;
    let result = result();
    let old = result.split_once("\"tokens_per_second\"").unwrap().1;
    let old = old.split_once('}').unwrap().0;
    let result = result.replace(&format!("\"tokens_per_second\"{old}"), performance);
    let (output, _) = assay(&["results", ID], &[(200, result.clone())]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in [
        "measured in an earlier job",
        "1.95 times one device",
        "97.5 %",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(!shown.contains("61.25"), "{shown}");
    let (output, _) = assay(&["results", ID, "--devices"], &[(200, result)]).await;
    let shown = text(&output.stdout);
    println!("{shown}");
    assert!(
        shown.contains("61.25") && shown.contains("host-1/2"),
        "{shown}"
    );
}

#[tokio::test]
async fn results_of_a_failed_job_say_why_and_are_exit_code_1() {
    let error = r#"{"code": "E4003", "detail": "line 3 is not JSON", "field": "datasets[0]"}"#;
    let why = "the job failed (E4003): datasets[0]: line 3 is not JSON";
    let unfinished = result().replace("\"complete\": true", "\"complete\": false");
    let failed = [(200, unfinished.clone()), (200, job("failed", 0, error))];
    let (output, _) = assay(&["results", ID], &failed).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(text(&output.stderr), format!("assay: {why}\n"));
    let (output, _) = assay(&["results", ID, "--json"], &failed).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).trim(), unfinished);
    assert!(text(&output.stderr).contains(why));

    let answers = [&failed[..], &[(200, result())]].concat();
    let (output, _) = assay(&["results", ID, ID], &answers).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("few clusters"));
    assert_eq!(text(&output.stderr), format!("assay: {ID}: {why}\n"));

    let answers = [(200, unfinished), (200, job("running", 0, "null"))];
    let (output, _) = assay(&["results", ID], &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[tokio::test]
async fn the_code_of_a_failed_job_is_listed() {
    let error = r#"{"code": "E4003", "detail": "line 3 is not JSON"}"#;
    let (one, other) = (job("failed", 0, error), job("running", 500, "null"));
    let page = format!(r#"{{"items": [{one}, {other}], "next": null}}"#);
    let (output, _) = assay(&["jobs"], &[(200, page)]).await;
    let shown = text(&output.stdout);
    assert!(
        shown.contains("error") && shown.contains("E4003"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_job_that_has_ended_is_not_cancelled() {
    let refusal = PROBLEM.replace("422", "409").replace("E0003", "E0011");
    let ended = job("succeeded", 1000, "null");
    let answers = [(409, refusal), (200, ended.clone())];
    let (output, _) = assay(&["cancel", ID], &answers).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = format!("{ID} has ended already: succeeded\n");
    assert_eq!(text(&output.stdout), expected);
    let (output, _) = assay(&["cancel", ID, "--json"], &answers).await;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).trim(), ended);
}

#[tokio::test]
async fn an_interrupted_wait_leaves_the_job() {
    let running = || async { job("running", 500, "null") };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(running);
    tokio::spawn(async { axum::serve(listener, router).await });
    let mut child = Command::new(env!("CARGO_BIN_EXE_assay"))
        .args(["submit", "--model=m", "--dataset=d", "--wait"])
        .args(["--server", &server])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert_eq!(line, "running: 500 of 1,000 tokens");
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    let line = lines.next_line().await.unwrap().unwrap();
    assert_eq!(
        line,
        format!("assay: interrupted; the job goes on (`assay cancel {ID}` stops it)")
    );
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
}

#[tokio::test]
async fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["submit", "--model", "m"][..],
        &["results", "not-an-id"],
        &["jobs", "--state", "asleep"],
        &[
            "submit",
            "--model",
            "m",
            "--dataset",
            "d",
            "--tag",
            "novalue",
        ],
    ] {
        let output = run(arguments, "http://127.0.0.1:1").await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}
