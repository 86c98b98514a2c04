//! The numbers of a job while it runs, and its report, across the end of a server.

use assay_api::{DatasetResult, PartialDataset, PartialResult};
use assay_testkit::{LIMIT, Roots, eventually};
use serde_json::{Value, json};

use crate::moby_dick::{jsonl, paragraphs};
use crate::service::Service;

const MODEL: &str = "llama_gqa";

fn job() -> Value {
    json!({
        "model": MODEL,
        "datasets": ["paragraphs.jsonl"],
        "method": [{"window": 32}, {"convention": "blocks", "window": 32}],
    })
}

/// What must be so of any part.
fn check(found: &PartialDataset) {
    let planned = found.planned_tokens.unwrap_or(0);
    assert!(found.numbers.scored_tokens <= planned, "{found:?}");
    let counted = found.points.iter().map(|point| point.numbers.scored_tokens);
    assert!(counted.is_sorted(), "{found:?}");
    if let Some(last) = found.points.last() {
        assert_eq!(last.numbers, found.numbers);
    }
}

fn check_end(found: &PartialDataset, result: &DatasetResult) {
    assert_eq!(found.shards_done, found.shards);
    assert_eq!(Some(&found.nll_exact), result.nll_exact.as_ref());
    assert_eq!(found.numbers.scored_tokens, result.scored_tokens);
    assert_eq!(found.numbers.perplexity, result.perplexity);
    assert_eq!(found.numbers.standard_error, result.standard_error);
    assert_eq!(found.numbers.confidence_95, result.confidence_95);
}

#[tokio::test]
async fn numbers_so_far_end_as_the_result_and_the_report_outlives_the_server() {
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data("paragraphs.jsonl", jsonl(&paragraphs(40, 400)));
    let mut service = Service::start(roots).await;
    let id = service.client.submit(&job()).await;
    let path = format!("/jobs/{id}/partial");
    let before: PartialResult = service.client.read(&path).await;
    assert!(!before.complete && before.datasets.len() == 2);
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let end = eventually("all to be counted", LIMIT, async || {
        let found: PartialResult = service.client.read(&path).await;
        found.datasets.iter().for_each(check);
        found.complete.then_some(found)
    })
    .await;
    let result = service.client.succeeded(id).await;
    for (found, result) in end.datasets.iter().zip(&result.datasets) {
        check_end(found, result);
        assert!(result.standard_error.is_some());
    }

    let path = format!("/jobs/{id}/report");
    let report = service.client.get(&path).await.text().await.unwrap();
    let digits = serde_json::to_string(&result.datasets[0].perplexity).unwrap();
    assert!(report.contains(&format!(">{digits}<")), "{digits}");
    service.restart_server().await;
    let again = service.client.get(&path).await.text().await.unwrap();
    assert!(report == again, "another server makes the same report");
    service.finish().await;
}
