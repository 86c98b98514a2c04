//! Receiving files into the cache.

use std::path::Path;
use std::sync::Mutex;

use assay_hub::{
    Hub, HubError, Progress, Settings, describes_model, weights_of_adapter, weights_of_model,
};
use tokio_util::sync::CancellationToken;

use crate::{Fixture, fetch_all, model, names, reference, resolve_and_fetch};
use assay_testkit::hub::{Access, Fault, large, small};

const SIZE: usize = 3 << 20;

#[tokio::test]
async fn the_cache_is_laid_out_as_others_lay_out_theirs() {
    let fixture = Fixture::new().await;
    let commit = model(&fixture.server, SIZE);
    let hub = fixture.hub();
    let directory = resolve_and_fetch(&hub, "hf://o/n").await.unwrap();

    assert_eq!(
        directory,
        fixture.path(&format!("models--o--n/snapshots/{commit}"))
    );
    assert_eq!(
        names(&directory),
        ["config.json", "docs", "model.safetensors"]
    );
    let read = |path: &str| std::fs::read(directory.join(path)).unwrap();
    assert_eq!(read("config.json"), b"{}");
    assert_eq!(read("docs/a b.txt"), b"text");
    assert_eq!(read("model.safetensors"), large(SIZE).bytes);
    let link = std::fs::read_link(directory.join("docs/a b.txt")).unwrap();
    // `printf text | git hash-object --stdin`
    let blob = "f3a34851d44d6b97c90fbb99dd3d18c261b9a237";
    assert_eq!(link, Path::new(&format!("../../../blobs/{blob}")));
    let branch = std::fs::read_to_string(fixture.path("models--o--n/refs/main")).unwrap();
    assert_eq!(branch, commit);
    assert_eq!(names(&fixture.path("models--o--n/blobs")).len(), 3);

    fixture.server.seen();
    assert_eq!(
        resolve_and_fetch(&hub, "hf://o/n").await.unwrap(),
        directory
    );
    assert_eq!(
        fixture.server.seen().len(),
        1,
        "only the branch is asked for"
    );
}

#[tokio::test]
async fn the_files_of_a_model_in_two_steps() {
    let fixture = Fixture::new().await;
    let index = r#"{"weight_map":{"a":"model-1-of-2.safetensors","b":"model-2-of-2.safetensors"}}"#;
    let files = [
        ("README.md", small("#")),
        ("config.json", small("{}")),
        ("consolidated.safetensors", large(7)),
        ("model-1-of-2.safetensors", large(11)),
        ("model-2-of-2.safetensors", large(13)),
        ("model.fp16.safetensors", large(17)),
        ("model.safetensors.index.json", small(index)),
        ("original/config.json", small("{ }")),
        ("pytorch_model.bin", large(19)),
    ];
    fixture.server.commit("o/n", "main", files);
    fixture.server.commit(
        "o/adapter",
        "main",
        [("adapter_model.safetensors", large(5))],
    );
    fixture
        .server
        .commit("o/pickle", "main", [("pytorch_model.bin", large(5))]);
    let hub = fixture.hub();
    let cancel = CancellationToken::new();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();

    let small = hub.fetch(&snapshot, describes_model, &|_| {}, &cancel);
    let directory = small.await.unwrap();
    assert_eq!(
        names(&directory),
        ["config.json", "model.safetensors.index.json"]
    );
    let weights = weights_of_model(&snapshot, &directory).unwrap();
    let wanted = |path: &str| weights.contains(path);
    hub.fetch(&snapshot, wanted, &|_| {}, &cancel)
        .await
        .unwrap();
    assert_eq!(
        names(&directory),
        [
            "config.json",
            "model-1-of-2.safetensors",
            "model-2-of-2.safetensors",
            "model.safetensors.index.json"
        ]
    );

    let adapter = hub.resolve(&reference("hf://o/adapter")).await.unwrap();
    let weights = weights_of_model(&adapter, &directory).unwrap();
    assert_eq!(weights, ["adapter_model.safetensors".to_owned()].into());
    assert_eq!(weights_of_adapter(&adapter).unwrap(), weights);
    assert!(weights_of_adapter(&snapshot).is_err());
    let pickle = hub.resolve(&reference("hf://o/pickle")).await.unwrap();
    let error = weights_of_model(&pickle, &directory).unwrap_err();
    assert!(matches!(error, HubError::NoWeights(_)), "{error}");
}

#[tokio::test]
async fn the_token_is_sent_to_the_hub_and_nowhere_else() {
    let fixture = Fixture::new().await;
    model(&fixture.server, SIZE);
    fixture.server.restrict("o/n", Access::Private);
    resolve_and_fetch(&fixture.with_token(), "hf://o/n")
        .await
        .unwrap();
    let seen = fixture.server.seen();
    assert_eq!(seen.iter().filter(|request| request.cdn).count(), 1);
    for request in seen {
        assert_eq!(request.authorized, !request.cdn, "{request:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_continued_where_it_broke() {
    let fixture = Fixture::new().await;
    let file = [("model.safetensors", large(SIZE))];
    fixture.server.commit("o/n", "main", file);
    // More failures than are put up with in a row; but each request brings something.
    let faults = [Fault::Cut(SIZE / 16); 6];
    fixture.server.fail(faults);
    fixture.server.fail([Fault::Status(503)]);
    let directory = resolve_and_fetch(&fixture.hub(), "hf://o/n").await.unwrap();
    let bytes = std::fs::read(directory.join("model.safetensors")).unwrap();
    assert_eq!(bytes, large(SIZE).bytes);
    let seen = fixture.server.seen();
    let from: Vec<u64> = seen
        .iter()
        .filter(|request| request.cdn)
        .map(|request| request.from)
        .collect();
    assert_eq!(from.len(), 8);
    assert_eq!(from[0], 0);
    assert!(from[..7].is_sorted_by(|before, after| before < after));
    assert_eq!(from[6], from[7]);
}

#[tokio::test]
async fn a_server_that_cannot_continue_begins_anew() {
    let fixture = Fixture::new().await;
    let file = [("model.safetensors", large(SIZE))];
    fixture.server.commit("o/n", "main", file);
    fixture.server.fail([Fault::Cut(SIZE / 2), Fault::Whole]);
    let hub = fixture.hub();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();
    let last = Mutex::new(0);
    let directory = hub
        .fetch(
            &snapshot,
            |_| true,
            &|progress| *last.lock().unwrap() = progress.done,
            &CancellationToken::new(),
        )
        .await
        .unwrap();
    let bytes = std::fs::read(directory.join("model.safetensors")).unwrap();
    assert_eq!(bytes, large(SIZE).bytes);
    assert_eq!(*last.lock().unwrap(), SIZE as u64);
}

#[tokio::test]
async fn a_fetch_may_be_a_task_of_its_own() {
    let fixture = Fixture::new().await;
    model(&fixture.server, 10);
    let hub = fixture.hub();
    let task = async move { resolve_and_fetch(&hub, "hf://o/n").await };
    tokio::spawn(task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_hub_that_stays_broken_is_given_up() {
    let fixture = Fixture::new().await;
    model(&fixture.server, 10);
    let hub = fixture.hub();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();
    fixture.server.fail([Fault::Status(503); 100]);
    let error = fetch_all(&hub, &snapshot).await.unwrap_err();
    assert!(
        matches!(error, HubError::Broken { status: 503, .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("secret"), "{error}");

    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let endpoint = format!("http://{}", port.local_addr().unwrap());
    drop(port);
    let nobody = Settings {
        endpoint,
        ..fixture.settings()
    };
    let error = Hub::new(&nobody)
        .unwrap()
        .resolve(&reference("hf://o/n"))
        .await
        .unwrap_err();
    assert!(matches!(error, HubError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("HF_ENDPOINT"), "{error}");
}

#[tokio::test]
async fn a_hub_that_is_asked_too_often_is_left_alone() {
    let fixture = Fixture::new().await;
    model(&fixture.server, 10);
    fixture.server.fail([Fault::Status(429); 100]);
    let error = resolve_and_fetch(&fixture.hub(), "hf://o/n")
        .await
        .unwrap_err();
    assert!(
        matches!(error, HubError::TooOften { has_token: false }),
        "{error}"
    );
    assert!(
        error.to_string().contains("later, or set HF_TOKEN"),
        "{error}"
    );
}

#[tokio::test]
async fn progress_counts_every_byte_of_what_is_wanted() {
    let fixture = Fixture::new().await;
    model(&fixture.server, SIZE);
    let hub = fixture.hub();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();
    let total = SIZE as u64 + 6;
    for repeated in [false, true] {
        let seen = Mutex::new(Vec::new());
        let note =
            |progress: Progress<'_>| seen.lock().unwrap().push((progress.done, progress.total));
        hub.fetch(&snapshot, |_| true, &note, &CancellationToken::new())
            .await
            .unwrap();
        let seen = seen.into_inner().unwrap();
        assert!(seen.is_sorted());
        assert_eq!(seen.last(), Some(&(total, total)));
        assert_eq!(seen.len() > 10, !repeated, "{}", seen.len());
    }
}

#[tokio::test]
async fn cancelling_ends_it_and_keeps_what_has_come() {
    let fixture = Fixture::new().await;
    let file = [("model.safetensors", large(SIZE))];
    fixture.server.commit("o/n", "main", file);
    fixture.server.fail([Fault::Hold(SIZE / 2)]);
    let hub = fixture.hub();
    let snapshot = hub.resolve(&reference("hf://o/n")).await.unwrap();
    let cancel = CancellationToken::new();
    let half = |progress: Progress<'_>| {
        if progress.done == SIZE as u64 / 2 {
            cancel.cancel();
        }
    };
    let error = hub
        .fetch(&snapshot, |_| true, &half, &cancel)
        .await
        .unwrap_err();
    assert!(matches!(error, HubError::Cancelled), "{error}");
    fixture.server.seen();
    fetch_all(&hub, &snapshot).await.unwrap();
    let from = fixture.server.seen()[1].from;
    assert_eq!(from, SIZE as u64 / 2);
}

#[tokio::test]
async fn offline_the_cache_is_all_there_is() {
    let fixture = Fixture::new().await;
    model(&fixture.server, SIZE);
    let (hub, offline) = (fixture.hub(), fixture.offline());
    let branch = reference("hf://o/n");
    let error = offline.resolve(&branch).await.unwrap_err();
    assert!(matches!(error, HubError::NotCached(_)), "{error}");

    let snapshot = hub.resolve(&branch).await.unwrap();
    let cancel = CancellationToken::new();
    let small = hub.fetch(&snapshot, describes_model, &|_| {}, &cancel);
    let directory = small.await.unwrap();
    fixture.server.seen();
    assert_eq!(offline.resolve(&branch).await.unwrap(), snapshot);
    let error = fetch_all(&offline, &snapshot).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("lacks docs/a b.txt, model.safetensors of o/n"),
        "{error}"
    );
    let small = offline.fetch(&snapshot, describes_model, &|_| {}, &cancel);
    assert_eq!(small.await.unwrap(), directory);
    assert!(fixture.server.seen().is_empty());
}
