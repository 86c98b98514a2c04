//! Who follows a job misses nothing and sees nothing twice, whatever is killed meanwhile.

use assay_api::JobId;
use assay_testkit::{LIMIT, Program};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::long_job::{parts, roots};
use crate::random::Random;
use crate::service::{Service, program_of_assay};

const DATASETS: u32 = 6;

fn path(job: JobId) -> String {
    format!("/jobs/{job}/events")
}

fn watch(service: &Service, job: JobId, after: Option<&str>) -> Program {
    let mut command = program_of_assay("assay");
    command.args(["watch", "--json", "--server"]);
    command.arg(format!("http://{}", service.address()));
    command.arg(job.to_string());
    if let Some(after) = after {
        command.args(["--after", after]);
    }
    Program::start(command)
}

/// The next event that a watch prints, which has to be one.
async fn next(watch: &mut Program) -> Value {
    let line = watch.line_after("").await;
    serde_json::from_str(&line).expect("a line of JSON")
}

fn is_end(event: &Value) -> bool {
    event["event"] == "state" && event["data"]["state"] == "succeeded"
}

/// What the server sends of a job that has ended, as `assay watch --json` prints it.
async fn told(service: &Service, job: JobId) -> Vec<Value> {
    let response = service.client.get(&path(job)).await;
    let kind = response.headers()["content-type"].clone();
    assert_eq!(kind, "text/event-stream");
    let text = response.text().await.expect("the stream ends with the job");
    let events = text.split_terminator("\n\n");
    events.map(parsed).collect()
}

fn parsed(event: &str) -> Value {
    let field = |name: &str| {
        let mut lines = event.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value
            .expect("each event has all fields")
            .trim_start()
            .to_owned()
    };
    let data: Value = serde_json::from_str(&field("data")).expect("JSON");
    json!({"id": field("id"), "event": field("event"), "data": data})
}

#[tokio::test]
async fn who_is_killed_misses_nothing() {
    let mut random = Random::seeded();
    let mut service = Service::start(roots()).await;
    let job = service.client.submit(&parts(DATASETS)).await;
    let mut watching = watch(&service, job, None);
    let mut seen = vec![next(&mut watching).await];
    service.add_worker("cpu:0-1");
    let mut round = 0;
    while !seen.last().is_some_and(is_end) {
        round += 1;
        if round % 3 == 0 {
            // The watch goes on by itself.
            service.restart_server().await;
        } else {
            // Another one goes on behind what this one was seen to print.
            watching.kill().await;
            let last = seen.last().and_then(|event| event["id"].as_str());
            watching = watch(&service, job, last);
        }
        for _ in 0..=random.below(2) {
            seen.push(next(&mut watching).await);
            if seen.last().is_some_and(is_end) {
                break;
            }
        }
    }
    println!("{round} rounds, {} events", seen.len());
    assert!(round > 3, "the server was never killed");

    let told = told(&service, job).await;
    let lasting = |event: &&Value| event["event"] != "progress";
    let lasted: Vec<&Value> = seen.iter().filter(lasting).collect();
    assert_eq!(lasted, told.iter().collect::<Vec<_>>());
    for pair in seen.windows(2) {
        assert_ne!(pair[0]["id"], pair[1]["id"]);
    }
    for (index, event) in told.iter().enumerate() {
        assert_eq!(event["id"], (index + 1).to_string());
    }

    let results: Value = service.client.read(&format!("/jobs/{job}/results")).await;
    let of_kind = |kind: &str| -> Vec<Value> {
        let events = told.iter().filter(|event| event["event"] == kind);
        events.map(|event| event["data"].clone()).collect()
    };
    let states: Vec<Value> = of_kind("state")
        .into_iter()
        .map(|e| e["state"].clone())
        .collect();
    assert_eq!(states, ["queued", "planning", "running", "succeeded"]);
    let mut done = of_kind("dataset");
    for row in &mut done {
        row.as_object_mut()
            .expect("an object")
            .remove("at")
            .expect("a time");
    }
    done.sort_by_key(|row| row["name"].as_str().map(str::to_owned));
    assert_eq!(Value::Array(done), results["datasets"]);
    service.finish().await;
}

#[tokio::test]
async fn the_last_event_is_the_end() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0-1");
    let job = service.client.submit(&parts(1)).await;
    service.client.succeeded(job).await;
    let last = told(&service, job).await.pop().expect("events");
    let after = |id: &str| {
        let request = service.client.request(Method::GET, &path(job));
        request.header("Last-Event-ID", id.to_owned()).send()
    };
    let id = last["id"].as_str().expect("an id");
    assert_eq!(after(id).await.unwrap().status(), StatusCode::NO_CONTENT);
    let number: u32 = id.parse().expect("a number");
    let once = after(&format!("{}", number - 1))
        .await
        .unwrap()
        .text()
        .await;
    assert_eq!(parsed(once.unwrap().trim_end()), last);
    let refused = after("yesterday").await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["errors"][0]["field"], "Last-Event-ID");

    let mut watching = watch(&service, job, Some(id));
    let status = watching.ended_within(LIMIT).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(watching.rest_of_output().await, [""; 0]);
    service.finish().await;
}

#[tokio::test]
async fn a_watch_keeps_no_server_from_stopping() {
    let service = Service::start(roots()).await;
    let job = service.client.submit(&parts(1)).await;
    let mut watching = watch(&service, job, None);
    let first = next(&mut watching).await;
    assert_eq!(first["data"]["state"], "queued");
    service.server.stop().await;
    assert!(!service.has_logged("were cut off"));
}
