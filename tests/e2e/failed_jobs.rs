//! Where a number that is none came up: the job fails with the document and the token.

use assay_api::ErrorCode::NonFinite;
use assay_testkit::{Roots, fixture};
use serde_json::{Value, json};

use crate::checkpoint::Damaged;
use crate::service::Service;

/// A row of the embedding is NaN: the first token that follows it is named, and the job fails
/// without a second try.
#[tokio::test]
async fn a_number_that_is_none_names_document_and_token() {
    let expected = std::fs::read_to_string(fixture("llama_gqa").join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let tokens = &expected["tokens"];
    let ids = |name: &str| tokens[name]["without_special"].as_array().unwrap();
    // The first token of the second document that the first document does not have.
    let (token, row) = ids("mixed")
        .iter()
        .enumerate()
        .find(|(_, id)| !ids("short").contains(id))
        .unwrap();
    let roots = Roots::new();
    let model = roots.add_model("llama_gqa");
    let row = usize::try_from(row.as_u64().unwrap()).unwrap();
    Damaged(&model).poison("model.embed_tokens.weight", row);
    let lines = ["short", "mixed"].map(|name| json!({"text": tokens[name]["text"]}).to_string());
    roots.add_data("two.jsonl", lines.join("\n"));

    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    // Windows of one token: in a longer one, attention multiplies the NaN by zero for the tokens
    // before it, which is NaN as well.
    let job = json!({
        "model": "llama_gqa",
        "datasets": [{"path": "two.jsonl", "name": "both"}],
        "method": {"window": 1},
    });
    let id = service.client.submit(&job).await;
    let error = service.client.failed(id).await;
    assert_eq!(error.code, NonFinite, "{error:?}");
    let place = format!("both: token {} of document 1:", token + 1);
    assert!(error.detail.starts_with(&place), "{place:?}: {error:?}");
    let shards = service.client.shards(id).await;
    let attempts: Vec<_> = shards.iter().flat_map(|shard| &shard.attempts).collect();
    assert_eq!(attempts.len(), 1, "{attempts:?}");
    let location = error.shard.unwrap();
    assert_eq!((location.shard, &location.worker), (0, &attempts[0].worker));
    service.finish().await;
}
