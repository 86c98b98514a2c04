//! What a hub refuses, and references where no hub is used.

use assay_api::ErrorCode;
use assay_testkit::hub::{Access, Fault, File, TOKEN, large, small};
use serde_json::json;

use super::{DATASET, MODEL, OF_DATASET, OF_MODEL, Scene, job, of_large_files, push};
use crate::checkpoint::Damaged;
use crate::client::refusal;

#[tokio::test]
async fn what_is_private_takes_a_token_that_nobody_sees() {
    let mut scene = Scene::with(&["--hub"], Some(TOKEN)).await;
    scene.hub.restrict("org/random", Access::Private);
    scene.hub.restrict("datasets/org/texts", Access::Private);
    scene.add_worker();
    let id = scene.post().await;
    assert_eq!(scene.numbers(id).await, scene.local().await);
    assert!(!scene.service.has_logged(TOKEN));
    let answer = scene.service.client.get(&format!("/jobs/{id}")).await;
    assert!(!answer.text().await.unwrap().contains(TOKEN));
    scene.hub.restrict("org/random", Access::Gated);
    // Of a gated repository the list is shown, and no file; a new commit has not been seen.
    let model = scene.service.roots.models().join(MODEL);
    Damaged(&model).set("config.json", "note", json!("new"));
    push(&scene.hub, "org/random", &model);
    let answer = scene.service.client.post(&job(OF_MODEL, OF_DATASET)).await;
    let (status, code, fields, detail) = refusal(answer).await;
    assert_eq!((status, code), (422, ErrorCode::CheckpointUnreadable));
    assert_eq!(fields, ["model"]);
    assert!(detail.contains("gated"), "{detail}");
    scene.service.finish().await;
}

#[tokio::test]
async fn what_the_hub_refuses_is_refused_at_once() {
    let scene = Scene::new().await;
    scene.hub.restrict("org/random", Access::Private);
    let model = scene.service.roots.models().join(MODEL);
    push(&scene.hub, "org/public", &model);
    let damaged = File {
        served: "{}x".into(),
        ..small("{x}")
    };
    let hub = &scene.hub;
    hub.commit("org/damaged", "main", [("config.json", damaged)]);
    hub.commit("org/pickled", "main", [("pytorch_model.bin", large(9))]);
    let dataset = "datasets[0].path";
    let (checkpoint, data) = (
        ErrorCode::CheckpointUnreadable,
        ErrorCode::DatasetUnreadable,
    );
    let invalid = ErrorCode::InvalidRequest;
    for (model, text, code, field, word) in [
        (OF_MODEL, DATASET, checkpoint, "model", "HF_TOKEN"),
        ("hf://org/none", DATASET, checkpoint, "model", "private"),
        ("hf://org/public@v9", DATASET, checkpoint, "model", "v9"),
        ("hf://org/damaged", DATASET, checkpoint, "model", "damaged"),
        (
            "hf://org/pickled",
            DATASET,
            checkpoint,
            "model",
            "safetensors",
        ),
        ("hf://org/public/x", DATASET, invalid, "model", "as a whole"),
        (OF_DATASET, DATASET, invalid, "model", "of a dataset"),
        (
            MODEL,
            "hf://org/public@main",
            invalid,
            dataset,
            "is a model",
        ),
        (
            MODEL,
            "hf://datasets/org/texts@main/no.jsonl",
            data,
            dataset,
            "no.jsonl",
        ),
        (
            MODEL,
            "hf://datasets/org/texts@v9/data/three.jsonl",
            data,
            dataset,
            "v9",
        ),
    ] {
        let answer = scene.service.client.post(&job(model, text)).await;
        let (status, found, fields, detail) = refusal(answer).await;
        assert_eq!((status, found), (422, code), "{detail}");
        assert_eq!(fields, [field], "{detail}");
        assert!(detail.contains(word), "{detail}");
    }
    // What is answered five times in a row is believed; several files are asked for at a time.
    scene.hub.fail([Fault::Status(503); 50]);
    let public = job("hf://org/public", DATASET);
    let (status, code, fields, _) = refusal(scene.service.client.post(&public).await).await;
    assert_eq!((status, code), (503, ErrorCode::Unavailable));
    assert_eq!(fields, ["model"]);
    scene.service.finish().await;
}

#[tokio::test]
async fn without_a_hub_references_are_refused_and_nothing_is_asked() {
    let mut scene = Scene::with(&[], None).await;
    let model = json!({"path": OF_MODEL, "adapter": "hf://org/adapter"});
    let answer = scene.service.client.post(&job(model, OF_DATASET)).await;
    let (status, code, fields, detail) = refusal(answer).await;
    assert_eq!((status, code), (422, ErrorCode::HubDisabled));
    assert_eq!(fields, ["datasets[0].path", "model", "model.adapter"]);
    assert!(detail.contains("--hub"), "{detail}");
    assert!(scene.hub.seen().is_empty());
    scene.service.finish().await;

    // The workers need it as well.
    scene = Scene::new().await;
    scene.service.add_worker("cpu:0");
    let id = scene.post().await;
    let error = scene.service.client.failed(id).await;
    assert_eq!(error.code, ErrorCode::HubDisabled);
    assert!(error.detail.contains("--hub"), "{error:?}");
    assert!(of_large_files(scene.hub.seen()).is_empty());
    scene.service.finish().await;
}
