//! What a worker finds wrong: the job fails with the code, the field and the place.

use assay_api::ErrorCode::{DatasetEmpty, DatasetInvalid, NonFinite};
use assay_testkit::{Roots, fixture};
use serde_json::{Value, json};

use crate::checkpoint::Damaged;
use crate::service::Service;

#[tokio::test]
#[rustfmt::skip] // one case a line
async fn datasets_at_fault_are_named() {
    let good = "{\"text\": \"good\"}\n";
    let cases: [(&str, Vec<u8>, _, &[&str]); 9] = [
        ("latin1.txt", b"caf\xe9".to_vec(), DatasetInvalid, &["latin1.txt", "UTF-8", "byte 3"]),
        ("empty.txt", Vec::new(), DatasetEmpty, &["empty.txt"]),
        ("latin1.jsonl", [good.as_bytes(), b"{\"text\": \"caf\xe9\"}\n"].concat(), DatasetInvalid, &["line 2", "UTF-8"]),
        ("broken.jsonl", format!("{good}\n{{\"text\": \n").into(), DatasetInvalid, &["line 3", "not JSON"]),
        ("no-field.jsonl", format!("{good}{{\"prompt\": \"x\"}}\n").into(), DatasetInvalid, &["line 2", "`text`", "`prompt`"]),
        ("number.jsonl", format!("{good}{{\"text\": 7}}\n").into(), DatasetInvalid, &["line 2", "a number"]),
        ("list.jsonl", format!("{good}[]\n").into(), DatasetInvalid, &["line 2", "an array"]),
        ("blank.jsonl", b"\n\n  \n".to_vec(), DatasetEmpty, &["blank.jsonl"]),
        ("no-tokens.jsonl", b"{\"text\": \"\"}\n".to_vec(), DatasetEmpty, &["no-tokens.jsonl"]),
    ];
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    roots.add_data("good.txt", "good");
    for (name, content, ..) in &cases {
        roots.add_data(name, content);
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    for (name, _, code, parts) in cases {
        let job = json!({"model": "llama_gqa", "datasets": ["good.txt", name]});
        let id = service.client.submit(&job).await;
        let error = service.client.failed(id).await;
        assert_eq!(error.code, code, "{name}: {error:?}");
        assert_eq!(error.field.as_deref(), Some("datasets[1]"), "{name}: {error:?}");
        assert_eq!(error.shard, None, "{name}: {error:?}");
        for part in parts {
            assert!(error.detail.contains(part), "{part:?} is not in {error:?}");
        }
        let attempts: i64 = sqlx::query_scalar("select count(*) from attempts where job_id = $1")
            .bind(id)
            .fetch_one(&mut service.ledger().await)
            .await
            .unwrap();
        assert_eq!(attempts, 1, "{name}: another try would end the same way");
    }
    // The worker is none the worse for it.
    service.client.run(&json!({"model": "llama_gqa", "datasets": ["good.txt"]})).await;
    service.finish().await;
}

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
