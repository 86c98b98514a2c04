//! Gates that cannot be decided are refused when the job is posted, not after it is computed.

use assay_api::ErrorCode::{InvalidRequest, MalformedJson};
use assay_api::{Job, JobId};
use reqwest::Method;
use serde_json::{Value, json};

use super::{BROKEN, MODEL, NOISY, job, service};
use crate::client::{problem, refusal};

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

/// A gate on `baseline` with some fields changed, as a change of a job.
fn gate(baseline: JobId, change: &Value) -> Value {
    let mut gate = json!({"baseline": baseline, "max_increase": 0.01});
    for (field, value) in change.as_object().unwrap() {
        gate[field] = value.clone();
    }
    json!({"gate": gate})
}

#[tokio::test]
async fn gates_at_fault_are_refused() {
    let mut service = service().await;
    service.add_worker("cpu:0");
    let done = service.client.done(&job(MODEL, json!({}))).await;
    let failed = service.client.submit(&job(BROKEN, json!({}))).await;
    service.client.failed(failed).await;
    service.workers[0].stop().await;
    let cancelled = service
        .client
        .submit(&job(MODEL, json!({"reuse": false})))
        .await;
    service.client.cancel(cancelled).await;

    let gate = |change: Value| gate(done, &change);
    let with = |other: Value| {
        let mut change = gate(json!({}));
        change
            .as_object_mut()
            .unwrap()
            .extend(other.as_object().unwrap().clone());
        change
    };
    let jobs_before: Vec<Job> = service.client.all("/jobs?limit=100").await;
    let baseline = "gate.baseline";
    for (change, field, word) in [
        (gate(json!({"baseline": NOBODY})), baseline, NOBODY),
        (gate(json!({"baseline": failed})), baseline, "E2003"),
        (gate(json!({"baseline": cancelled})), baseline, "cancelled"),
        (
            gate(json!({"baseline": {"tag": "branch:none"}})),
            baseline,
            "branch:none",
        ),
        (
            gate(json!({"baseline": {"tag": "main"}})),
            baseline,
            "key:value",
        ),
        (gate(json!({"baseline": "main"})), baseline, "main"),
        (
            gate(json!({"baseline": {"tags": "a:b"}})),
            "gate.baseline.tags",
            "tag",
        ),
        (with(json!({"dtype": "bfloat16"})), baseline, "bfloat16"),
        (with(json!({"method": {"window": 32}})), baseline, "32"),
        (
            gate(json!({"datasets": ["none"]})),
            "gate.datasets[0]",
            "none",
        ),
        (
            gate(json!({"max_increase": -0.001})),
            "gate.max_increase",
            "-0.001",
        ),
        (
            gate(json!({"max_increase": 1e9})),
            "gate.max_increase",
            "nats",
        ),
        (gate(json!({"max_increase": null})), "gate.max_increase", ""),
        (
            json!({"gate": {"baseline": done}}),
            "gate.max_increase",
            "missing",
        ),
        (gate(json!({"limit": 1})), "gate.limit", "limit"),
        (json!({"gate": [done, 0.01]}), "gate", "object"),
    ] {
        let body = job(NOISY, change);
        let problem = problem(service.client.post(&body).await).await;
        assert_eq!(
            (problem.status, problem.code),
            (422, InvalidRequest),
            "{body}"
        );
        let fields: Vec<&str> = problem
            .errors
            .iter()
            .map(|error| error.field.as_str())
            .collect();
        assert_eq!(fields, [field], "{body}: {problem:?}");
        assert!(
            problem.errors[0].detail.contains(word),
            "{word}: {problem:?}"
        );
    }
    // Several faults are named together.
    let body = job(
        NOISY,
        gate(json!({"baseline": failed, "datasets": ["none"]})),
    );
    let (status, code, mut fields, _) = refusal(service.client.post(&body).await).await;
    fields.sort();
    assert_eq!((status, code), (422, InvalidRequest));
    assert_eq!(fields, [baseline, "gate.datasets[0]"]);

    let jobs: Vec<Job> = service.client.all("/jobs?limit=100").await;
    assert_eq!(jobs, jobs_before, "what is refused is no job");
    service.finish().await;
}

#[tokio::test]
async fn the_largest_increase_is_a_number_within_bounds() {
    let service = service().await;
    let waits = service.client.submit(&job(MODEL, json!({}))).await;
    let gate = |change: Value| gate(waits, &change);
    // Numbers that JSON does not have.
    for number in ["NaN", "-Infinity", "1e999"] {
        let body = job(NOISY, gate(json!({"max_increase": 7}))).to_string();
        let body = body.replace(
            r#""max_increase":7"#,
            &format!(r#""max_increase":{number}"#),
        );
        let request = service.client.request(Method::POST, "/jobs");
        let request = request
            .header("Content-Type", "application/json")
            .body(body);
        let (status, code, ..) = refusal(request.send().await.unwrap()).await;
        assert_eq!((status, code), (400, MalformedJson), "{number}");
    }
    // The bounds themselves pass.
    for increase in [0.0, 100.0] {
        let body = job(NOISY, gate(json!({"max_increase": increase})));
        let id = service.client.submit(&body).await;
        service.client.cancel(id).await;
    }
    service.finish().await;
}
