//! The demo checkpoint on the demo text, against transformers (reference/make.py).

use std::fs;

use assay_api::AttemptKind;
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::moby_dick::{chapters, jsonl};
use crate::service::Service;

const MODEL: &str = "model.gguf";
const DATASET: &str = "moby-dick.jsonl";

/// Needs the checkpoint at `ASSAY_DEMO_MODEL`, which `make test` fetches.
#[tokio::test]
async fn chapters_score_as_in_transformers() {
    let Some(model) = std::env::var_os("ASSAY_DEMO_MODEL") else {
        println!("skipped: ASSAY_DEMO_MODEL is not set");
        return;
    };
    let reference: Value =
        serde_json::from_str(include_str!("../reference/moby-dick.json")).unwrap();
    let expected = reference["documents"].as_array().unwrap();
    let number = |document: &Value, field: &str| document[field].as_u64().unwrap();

    let roots = Roots::new();
    fs::copy(model, roots.models().join(MODEL)).expect("ASSAY_DEMO_MODEL can be read");
    roots.add_data(DATASET, jsonl(&chapters()));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let tokens: u64 = expected
        .iter()
        .map(|document| number(document, "tokens"))
        .sum();
    let job = json!({
        "model": MODEL,
        "datasets": [{"path": DATASET, "limit_tokens": tokens}],
        "method": {"window": reference["window"]},
    });
    let id = service.client.submit(&job).await;
    let result = service.client.succeeded(id).await;

    let model = result.model.as_ref().unwrap();
    assert_eq!(model.family, "llama");
    assert_eq!(
        model.digest,
        format!("sha256:{}", reference["model_sha256"].as_str().unwrap())
    );
    assert!((134_000_000..136_000_000).contains(&model.parameters));
    let tokenizer = result.tokenizer.as_ref().unwrap();
    let seen: Vec<Value> = tokenizer
        .first_token_ids
        .iter()
        .map(|id| json!(id))
        .collect();
    let ids = expected[0]["first_ids"].as_array().unwrap();
    assert_eq!(
        (&seen[0], &seen[1..]),
        (&reference["prefix"], &ids[..seen.len() - 1])
    );

    let documents = service.client.documents(id, DATASET).await;
    assert_eq!(documents.len(), expected.len());
    for (document, expected) in documents.iter().zip(expected) {
        for (value, field) in [
            (document.tokens, "tokens"),
            (document.scored_tokens, "tokens"),
            (document.bytes, "bytes"),
            (document.words, "words"),
        ] {
            assert_eq!(
                value,
                number(expected, field),
                "document {}: {field}",
                document.index
            );
        }
        let nll = expected["nll"].as_f64().unwrap();
        let difference = (document.nll - nll).abs() / nll;
        assert!(
            difference < 2e-6,
            "document {}: off by {difference:e}",
            document.index
        );
    }

    let dataset = &result.datasets[0];
    assert_eq!(dataset.documents, Some(expected.len() as u64));
    let performance = &result.performance;
    assert_eq!(performance.counted_tokens, dataset.scored_tokens);
    // More where one device repeats what another one is slow with.
    let shards = service.client.shards(id).await;
    let mut attempts = shards.iter().flat_map(|shard| &shard.attempts);
    if !attempts.any(|attempt| attempt.kind == AttemptKind::Copy) {
        assert_eq!(performance.computed_tokens, dataset.scored_tokens);
    }
    assert!(performance.computed_tokens >= dataset.scored_tokens);
    assert!(performance.seconds > 0.0 && dataset.seconds > 0.0);
    assert!(performance.tokens_per_second.unwrap() > 1.0);
    assert!(
        (10.0..100.0).contains(&dataset.perplexity.unwrap()),
        "{dataset:?}"
    );
    // Two documents are too few for an error bar.
    assert_eq!(
        (dataset.standard_error, dataset.confidence_95),
        (None, None)
    );
    assert!(!result.warnings.is_empty());
    service.finish().await;
}
