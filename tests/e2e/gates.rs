//! Gates: a job is held against an earlier one, and says whether it passes.

mod demo;
mod refused;

use assay_api::{Gate, JobId, Verdict};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::checkpoint::Damaged;
use crate::client::refusal;
use crate::moby_dick::{jsonl, paragraphs};
use crate::noise::add_noisy_model;
use crate::paired::verdict;
use crate::service::Service;

const MODEL: &str = "llama_gqa";
const NOISY: &str = "noisy";
/// A model whose every NLL is NaN.
const BROKEN: &str = "broken";
const DATASET: &str = "paragraphs.jsonl";
const MAX_INCREASE: f64 = 0.01;

/// A service without a worker.
async fn service() -> Service {
    let roots = Roots::new();
    add_noisy_model(&roots, MODEL, BROKEN, 0.0);
    Damaged(&roots.models().join(BROKEN)).each(|_| f32::NAN);
    add_noisy_model(&roots, MODEL, NOISY, 0.05);
    roots.add_data(DATASET, jsonl(&paragraphs(20, 150)));
    roots.add_data("other.jsonl", jsonl(&paragraphs(6, 80)));
    Service::start(roots).await
}

fn job(model: &str, change: Value) -> Value {
    let mut job = json!({"model": model, "datasets": [DATASET], "method": {"window": 64}});
    let Value::Object(change) = change else {
        panic!("a change is an object")
    };
    job.as_object_mut().unwrap().extend(change);
    job
}

/// A job that is held against `baseline`.
fn gated(model: &str, baseline: &Value) -> Value {
    let gate = json!({"baseline": baseline, "max_increase": MAX_INCREASE});
    job(model, json!({"gate": gate}))
}

/// The baseline of a job's gate.
async fn resolved(service: &Service, id: JobId) -> Option<JobId> {
    let job = service.client.job(id).await;
    job.gate.map(|gate| gate.baseline)
}

/// Checks that nothing is said yet, and that the reason names `state`.
async fn undecided(service: &Service, id: JobId, state: &str) {
    let found = service.client.gate(id).await;
    assert_eq!(
        (found.verdict, &found.comparison),
        (None, &None),
        "{found:?}"
    );
    assert!(found.reason.contains(state), "{state}: {found:?}");
}

/// Checks that a gate is inconclusive without a comparison, and that the reason has these parts.
async fn without_a_comparison(service: &Service, id: JobId, parts: &[&str]) {
    let found = service.client.gate(id).await;
    assert_eq!(found.verdict, Some(Verdict::Inconclusive), "{found:?}");
    assert_eq!(found.comparison, None, "{found:?}");
    for part in parts {
        assert!(found.reason.contains(part), "{part}: {found:?}");
    }
}

#[tokio::test]
async fn a_gate_is_decided_when_both_jobs_have_ended() {
    let mut service = service().await;
    let baseline = service.client.submit(&job(MODEL, json!({}))).await;
    let candidate = service.client.submit(&gated(NOISY, &json!(baseline))).await;
    undecided(&service, candidate, "queued").await;
    let gate = Gate {
        baseline,
        max_increase: MAX_INCREASE,
        datasets: Vec::new(),
    };
    assert_eq!(service.client.job(candidate).await.gate, Some(gate.clone()));

    // A job without a gate has none to ask for.
    assert_eq!(service.client.job(baseline).await.gate, None);
    let answer = service.client.get(&format!("/jobs/{baseline}/gate")).await;
    let (status, code, ..) = refusal(answer).await;
    assert_eq!((status, code), (404, assay_api::ErrorCode::NotFound));

    service.add_worker("cpu:0");
    service.client.succeeded(candidate).await;
    service.client.succeeded(baseline).await;
    let found = service.client.gate(candidate).await;
    assert_eq!((found.job_id, found.gate), (candidate, gate));
    let comparison = found.comparison.unwrap();
    let row = &comparison.datasets[0];
    let expected = verdict(&row.difference, MAX_INCREASE);
    assert_eq!(
        (row.verdict, found.verdict),
        (Some(expected), Some(expected))
    );
    assert!(
        found.reason.contains(row.reason.as_deref().unwrap()),
        "{}",
        found.reason
    );
    // The same as is said to whoever compares the two.
    let request = json!({
        "baseline": baseline, "candidate": candidate, "max_increase": MAX_INCREASE,
    });
    assert_eq!(service.client.compare(&request).await, comparison);
    service.finish().await;
}

#[tokio::test]
async fn a_tag_is_the_newest_succeeded_job_that_has_it() {
    let mut service = service().await;
    service.add_worker("cpu:0");
    let tags = json!({"branch": "main"});
    let mut older = Vec::new();
    for model in [MODEL, NOISY] {
        let job = job(model, json!({"tags": tags}));
        older.push(service.client.done(&job).await);
    }
    let broken = job(BROKEN, json!({"tags": tags}));
    let failed = service.client.submit(&broken).await;
    service.client.failed(failed).await;
    service
        .client
        .done(&job(MODEL, json!({"tags": {"branch": "other"}})))
        .await;
    service.workers[0].stop().await;
    let waits = service
        .client
        .submit(&job(MODEL, json!({"tags": tags})))
        .await;

    // Not the failed one, not the one that waits, not the one of another branch, not itself.
    let mut next = gated(MODEL, &json!({"tag": "branch:main"}));
    next["tags"] = tags;
    let candidate = service.client.submit(&next).await;
    assert_eq!(resolved(&service, candidate).await, Some(older[1]));
    service.add_worker("cpu:0");
    service.client.succeeded(waits).await;
    service.client.succeeded(candidate).await;

    // A later job with the tag changes nothing of what was resolved.
    assert_eq!(resolved(&service, candidate).await, Some(older[1]));
    let found = service.client.gate(candidate).await;
    assert_eq!(found.gate.baseline, older[1]);
    let comparison = found.comparison.unwrap();
    assert_eq!(
        (comparison.baseline, comparison.candidate),
        (older[1], candidate)
    );
    let next = service.client.submit(&next).await;
    assert_eq!(resolved(&service, next).await, Some(candidate));
    service.client.succeeded(next).await;
    assert_eq!(service.client.gate(next).await.verdict, Some(Verdict::Pass));
    service.finish().await;
}

#[tokio::test]
async fn what_ends_without_numbers_is_inconclusive() {
    let mut service = service().await;
    service.add_worker("cpu:0");
    let baseline = service.client.done(&job(MODEL, json!({}))).await;
    let failed = service
        .client
        .submit(&gated(BROKEN, &json!(baseline)))
        .await;
    service.client.failed(failed).await;
    without_a_comparison(&service, failed, &["failed", "E2003"]).await;

    service.workers[0].stop().await;
    let cancelled = service.client.submit(&gated(MODEL, &json!(baseline))).await;
    // Its baseline is cancelled later.
    let later = service.client.submit(&job(MODEL, json!({}))).await;
    let orphan = service.client.submit(&gated(NOISY, &json!(later))).await;
    // Names are those of the request: what is in the file is only known when it is read.
    let other = json!({"datasets": [{"path": "other.jsonl", "name": DATASET}]});
    let mut other = job(NOISY, other);
    other["gate"] = gated(NOISY, &json!(baseline))["gate"].clone();
    let other = service.client.submit(&other).await;
    for id in [cancelled, later] {
        service.client.cancel(id).await;
    }
    without_a_comparison(&service, cancelled, &["cancelled"]).await;
    undecided(&service, orphan, "queued").await;
    service.add_worker("cpu:0");
    service.client.succeeded(orphan).await;
    without_a_comparison(&service, orphan, &["baseline", "cancelled"]).await;
    service.client.succeeded(other).await;
    without_a_comparison(&service, other, &[DATASET, "digest"]).await;
    service.finish().await;
}
