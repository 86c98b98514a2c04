//! Numbers of an earlier job are taken where it scored the same, and only there.

use assay_api::{DatasetResult, Job, JobId, JobResult, JobState};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::checkpoint::Damaged;
use crate::reference::{expected, text};
use crate::service::Service;

const MODEL: &str = "llama_gqa";

fn roots() -> Roots {
    let roots = Roots::new();
    roots.add_model(MODEL);
    let expected = expected(MODEL);
    let lines = ["short", "long", "mixed"]
        .map(|which| json!({"text": text(&expected, which), "kind": which}).to_string());
    roots.add_data("three.jsonl", lines.join("\n"));
    roots.add_data("same.jsonl", lines.join("\n"));
    roots.add_data("short.txt", text(&expected, "short"));
    roots
}

fn job(change: Value) -> Value {
    let mut job = json!({
        "model": MODEL,
        "datasets": ["three.jsonl"],
        "method": {"window": 64},
    });
    let Value::Object(change) = change else {
        panic!("a change is an object")
    };
    job.as_object_mut().unwrap().extend(change);
    job
}

/// All but what a reused row says of itself.
fn numbers(row: &DatasetResult) -> DatasetResult {
    DatasetResult {
        name: String::new(),
        reused_from: None,
        seconds: 0.0,
        tokens_per_second: None,
        ..row.clone()
    }
}

async fn run(service: &Service, change: Value) -> (JobId, JobResult) {
    let id = service.client.submit(&job(change)).await;
    (id, service.client.succeeded(id).await)
}

fn sources(result: &JobResult) -> Vec<Option<JobId>> {
    result.datasets.iter().map(|row| row.reused_from).collect()
}

#[tokio::test]
async fn the_same_again_is_not_computed() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let (first, result) = run(&service, json!({})).await;
    assert_eq!(sources(&result), [None]);

    let (again, reused) = run(&service, json!({})).await;
    assert_eq!(sources(&reused), [Some(first)]);
    assert_eq!(numbers(&reused.datasets[0]), numbers(&result.datasets[0]));
    assert!(reused.datasets[0].seconds.abs() < f64::EPSILON);
    assert_eq!(reused.device_kinds, result.device_kinds);
    assert_eq!(
        (&reused.model, &reused.tokenizer),
        (&result.model, &result.tokenizer)
    );
    assert!(service.client.shards(again).await.is_empty());
    let of = |id| service.client.documents(id, "three.jsonl");
    assert_eq!(of(again).await, of(first).await);
    let done: Job = service.client.job(again).await;
    assert_eq!(done.state, JobState::Succeeded);
    let scored = result.datasets[0].scored_tokens;
    let progress = (done.progress.scored_tokens, done.progress.planned_tokens);
    assert_eq!(progress, (scored, Some(scored)));

    // From the job that computed it, not from one that took it over; under another name, too.
    let (_, third) = run(
        &service,
        json!({"datasets": [{"path": "same.jsonl", "name": "x"}]}),
    )
    .await;
    assert_eq!(sources(&third), [Some(first)]);
    assert_eq!(numbers(&third.datasets[0]), numbers(&result.datasets[0]));

    // A job of old and new rows computes the new ones.
    let methods = json!([{"window": 64}, {"convention": "strided", "window": 64}]);
    let datasets = json!(["three.jsonl", "short.txt"]);
    let (mixed, result) = run(&service, json!({"datasets": datasets, "method": methods})).await;
    assert_eq!(sources(&result), [Some(first), None, None, None]);
    let shards = service.client.shards(mixed).await;
    assert_eq!(
        shards.iter().map(|shard| shard.scored_tokens).sum::<u64>(),
        result.datasets[1..]
            .iter()
            .map(|row| row.scored_tokens)
            .sum::<u64>()
    );
    let (_, all) = run(&service, json!({"datasets": datasets, "method": methods})).await;
    assert_eq!(
        sources(&all),
        [Some(first), Some(mixed), Some(mixed), Some(mixed)]
    );

    // On request it is computed again, to the same integers.
    let (_, computed) = run(&service, json!({"reuse": false})).await;
    assert_eq!(sources(&computed), [None]);
    assert_eq!(computed.datasets[0].nll_exact, reused.datasets[0].nll_exact);
    service.finish().await;
}

#[tokio::test]
async fn what_differs_is_computed() {
    let roots = roots();
    let other = roots.models().join("other");
    std::fs::rename(roots.add_model(MODEL), &other).unwrap();
    roots.add_model(MODEL);
    Damaged(&other).nudge("model.norm.weight");
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    run(&service, json!({})).await;
    for change in [
        json!({"model": "other"}),
        json!({"dtype": "bfloat16"}),
        json!({"method": {"window": 63}}),
        json!({"method": {"convention": "blocks", "window": 64}}),
        json!({"method": {"convention": "blocks", "window": 64, "tail": "score"}}),
        json!({"method": {"convention": "blocks", "window": 64, "join": "x"}}),
        json!({"method": {"convention": "blocks", "window": 64, "bos": "never"}}),
        json!({"method": {"convention": "strided", "window": 64, "stride": 8}}),
        json!({"method": {"convention": "strided", "window": 64, "stride": 9}}),
        json!({"datasets": [{"path": "three.jsonl", "limit_documents": 2}]}),
        json!({"datasets": [{"path": "three.jsonl", "sample": {"documents": 2, "seed": 1}}]}),
        json!({"datasets": [{"path": "three.jsonl", "field": "kind"}]}),
        json!({"datasets": [{"path": "three.jsonl", "group_by": "kind"}]}),
        json!({"token_output": true}),
    ] {
        let (_, result) = run(&service, change.clone()).await;
        assert_eq!(sources(&result), [None], "{change}");
    }
    // The file has other bytes now.
    service
        .roots
        .add_data("three.jsonl", json!({"text": "another one"}).to_string());
    let (_, result) = run(&service, json!({})).await;
    assert_eq!(sources(&result), [None]);
    assert_eq!(result.datasets[0].documents, Some(1));
    // Another kind of device promises other bits.
    service.workers[0].stop().await;
    service.add_worker("cpu:0-1");
    let (_, result) = run(&service, json!({"datasets": ["same.jsonl"]})).await;
    assert_eq!(sources(&result), [None]);
    service.finish().await;
}
