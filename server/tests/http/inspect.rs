//! Inspections of checkpoints and datasets.

use assay_api::{DatasetInspection, ErrorCode, ModelInspection};
use serde_json::{Value, json};

use crate::service::{Service, refusal};

#[tokio::test]
async fn a_checkpoint_is_described_or_refused() {
    let service = Service::start().await;
    let model: ModelInspection = service.get("/models/inspect?path=llama_gqa").await;
    assert_eq!((&*model.path, &*model.family), ("llama_gqa", "llama"));
    assert!(model.parameters > 0 && model.tokenizer.digest.starts_with("sha256:"));
    for (query, code, field) in [
        ("", ErrorCode::InvalidRequest, "path"),
        ("?path=llama_gqa&x=1", ErrorCode::InvalidRequest, "x"),
        ("?path=none", ErrorCode::CheckpointUnreadable, "path"),
        ("?path=../llama_gqa", ErrorCode::PathOutsideRoot, "path"),
        ("?path=", ErrorCode::PathOutsideRoot, "path"),
    ] {
        let path = format!("/models/inspect{query}");
        let answer = service.send(reqwest::Method::GET, &path).await;
        let (found, fields, detail) = refusal(answer).await;
        assert_eq!((found, &*fields[0]), (code, field), "{query}: {detail}");
    }
    service.finish().await;
}

#[tokio::test]
async fn a_dataset_is_counted_or_refused() {
    let service = Service::start().await;
    service
        .roots
        .add_data("a.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"\"}\n");
    service
        .roots
        .add_data("bad.jsonl", "{\"text\": \"a b\"}\n{\"txt\": 1}\n");
    service.put("up.jsonl", "{\"text\": \"up\"}\n").await;
    let inspect = async |dataset: Value, model: Option<&str>| {
        let body = json!({"dataset": dataset, "model": model});
        service.post("/datasets/inspect", &body).await
    };
    let counted: DatasetInspection = inspect(json!("a.jsonl"), Some("llama_gqa"))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!((counted.documents, counted.empty_documents), (2, 1));
    assert!(counted.tokens > Some(0));
    for dataset in [json!({"upload": "up.jsonl"}), json!({"documents": ["x"]})] {
        let counted: DatasetInspection = inspect(dataset, None).await.json().await.unwrap();
        assert_eq!((counted.documents, counted.tokens), (1, None));
    }
    for (dataset, model, code, field) in [
        (
            json!("none"),
            None,
            ErrorCode::DatasetUnreadable,
            "dataset.path",
        ),
        (
            json!("bad.jsonl"),
            None,
            ErrorCode::DatasetInvalid,
            "dataset",
        ),
        (
            json!("a.jsonl"),
            Some("none"),
            ErrorCode::CheckpointUnreadable,
            "model",
        ),
        (
            json!({"path": "a.jsonl", "fild": 1}),
            None,
            ErrorCode::InvalidRequest,
            "dataset.fild",
        ),
        (
            json!({"path": "a.jsonl", "format": "chat"}),
            None,
            ErrorCode::InvalidRequest,
            "model",
        ),
        (
            json!({"upload": "none"}),
            None,
            ErrorCode::DatasetUnreadable,
            "dataset.upload",
        ),
    ] {
        let (found, fields, detail) = refusal(inspect(dataset, model).await).await;
        assert_eq!((found, &*fields[0]), (code, field), "{detail}");
    }
    service.finish().await;
}
