//! Plans compared.

use assay_api::{ErrorCode, Job, Page, PlanComparison, Strategy};
use serde_json::{Value, json};

use crate::service::{Service, refusal};

/// Documents of 1 to 40 words, the long ones last.
fn documents() -> String {
    let lines: Vec<String> = (1..=40)
        .map(|words| format!("{{\"text\": \"{}\"}}\n", "word ".repeat(words)))
        .collect();
    lines.concat()
}

#[tokio::test]
async fn strategies_are_compared_and_nothing_is_stored() {
    let service = Service::start().await;
    service.roots.add_data("ragged.jsonl", documents());
    let body = json!({
        "job": {
            "model": "llama_gqa",
            "datasets": ["ragged.jsonl", {"documents": ["one more"]}],
            "method": [{"window": 16}, {"convention": "blocks", "window": 16, "tail": "score"}],
        },
        "devices": [{"tokens_per_second": 10, "count": 3}, {"tokens_per_second": 5}],
        "seed": 3,
    });
    let compare = async || -> PlanComparison {
        let answer = service.post("/plans", &body).await;
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    };
    let compared = compare().await;
    assert_eq!(compared.documents, 41, "of each dataset once");
    assert!(compared.shards > 0 && compared.windows > 41);
    let kinds: Vec<_> = compared.strategies.iter().map(|s| s.strategy).collect();
    assert_eq!(
        kinds,
        [
            Strategy::Random,
            Strategy::Even,
            Strategy::Length,
            Strategy::Dynamic
        ]
    );
    // 35 tokens a second in all, whatever a token costs.
    let ideal = compared.scored_tokens as f64 / 35.0;
    assert!((compared.lower_bound_seconds / ideal - 1.0).abs() < 1e-9);
    for predicted in &compared.strategies {
        assert_eq!(predicted.device_seconds.len(), 4);
        let over = predicted.seconds.max / compared.lower_bound_seconds;
        assert!(over > 1.0 - 1e-9 && (predicted.over_lower_bound - over).abs() < 1e-9);
    }
    assert_eq!(compare().await, compared, "the same again");

    let jobs: Page<Job> = service.get("/jobs").await;
    assert!(jobs.items.is_empty());
    let left = std::fs::read_dir(service.roots.state()).unwrap();
    let left = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("plan-")
    });
    assert_eq!(left.count(), 0);
    service.finish().await;
}

#[tokio::test]
async fn what_cannot_be_planned_is_refused_with_its_field() {
    let service = Service::start().await;
    service.roots.add_data("a.jsonl", "{\"text\": \"a b\"}\n");
    service.roots.add_data("bad.jsonl", "{\"txt\": 1}\n");
    service.roots.add_data("empty.jsonl", "");
    service.roots.add_data("none.jsonl", "{\"text\": \"\"}\n");
    let job = |dataset: &str| json!({"model": "llama_gqa", "datasets": ["a.jsonl", dataset]});
    let devices = || json!([{"tokens_per_second": 10}]);
    let short = json!({
        "model": "llama_gqa",
        "datasets": ["a.jsonl"],
        "method": {"convention": "llamacpp", "window": 512},
    });
    let cases: [(Value, Value, ErrorCode, &str); 9] = [
        (
            job("bad.jsonl"),
            devices(),
            ErrorCode::DatasetInvalid,
            "job.datasets[1]",
        ),
        (
            job("empty.jsonl"),
            devices(),
            ErrorCode::DatasetEmpty,
            "job.datasets[1]",
        ),
        (
            job("none.jsonl"),
            devices(),
            ErrorCode::DatasetEmpty,
            "job.datasets[1]",
        ),
        (short, devices(), ErrorCode::DatasetEmpty, "job.datasets[0]"),
        (
            job("no"),
            devices(),
            ErrorCode::DatasetUnreadable,
            "job.datasets[1].path",
        ),
        (
            json!({"model": "llama_gqa"}),
            devices(),
            ErrorCode::InvalidRequest,
            "job.datasets",
        ),
        (
            job("a"),
            json!([]),
            ErrorCode::InvalidRequest,
            "job.datasets[1].path",
        ),
        (
            job("a.jsonl"),
            json!([{"count": 1}]),
            ErrorCode::InvalidRequest,
            "devices[0].tokens_per_second",
        ),
        (
            job("a.jsonl"),
            json!([{"tokens_per_second": 1, "cont": 1}]),
            ErrorCode::InvalidRequest,
            "devices[0].cont",
        ),
    ];
    for (job, devices, code, field) in cases {
        let body = json!({"job": job, "devices": devices});
        let (found, fields, detail) = refusal(service.post("/plans", &body).await).await;
        assert_eq!((found, &*fields[0]), (code, field), "{body}: {detail}");
    }
    service.finish().await;
}
