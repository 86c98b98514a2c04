//! What there is to choose from below the roots.

use std::fs;
use std::os::unix::fs::symlink;

use assay_api::{ErrorCode, FileEntry, FileKind, Job, ModelEntry, ModelFormat, ModelKind, Page};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::service::{Service, refusal};

#[tokio::test]
async fn models_are_told_from_directories() {
    let service = Service::start().await;
    let models = service.roots.models();
    let made = models.join("runs/first");
    fs::create_dir_all(&made).unwrap();
    fs::write(made.join("adapter_config.json"), "{}").unwrap();
    fs::write(made.join("adapter_model.safetensors"), [0; 12]).unwrap();
    // A checkpoint by half is a directory.
    fs::create_dir(models.join("unfinished")).unwrap();
    fs::write(models.join("unfinished/config.json"), "{}").unwrap();
    fs::write(models.join("small.Q4_1.GGUF"), [0; 7]).unwrap();
    fs::write(models.join("README.md"), "x").unwrap();
    fs::create_dir(models.join(".cache")).unwrap();
    symlink("/etc", models.join("elsewhere")).unwrap();

    let page: Page<ModelEntry> = service.get("/models").await;
    assert_eq!(page.next, None);
    let weights = fs::metadata(models.join("llama_gqa/model.safetensors")).unwrap();
    let kinds: Vec<_> = page
        .items
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind, entry.format, entry.bytes))
        .collect();
    let expected = [
        (
            "llama_gqa",
            ModelKind::Checkpoint,
            Some(ModelFormat::Safetensors),
            Some(weights.len()),
        ),
        ("runs", ModelKind::Directory, None, None),
        (
            "small.Q4_1.GGUF",
            ModelKind::Checkpoint,
            Some(ModelFormat::Gguf),
            Some(7),
        ),
        ("unfinished", ModelKind::Directory, None, None),
    ];
    assert_eq!(kinds, expected);

    let page: Page<ModelEntry> = service.get("/models?under=runs").await;
    let entry = &page.items[0];
    assert_eq!(
        (entry.path.as_str(), entry.kind),
        ("runs/first", ModelKind::Adapter)
    );
    assert_eq!(entry.bytes, Some(12));
    service.finish().await;
}

#[tokio::test]
async fn files_are_listed_a_level_and_a_page_at_a_time_and_can_be_posted() {
    let service = Service::start().await;
    fs::create_dir_all(service.roots.data().join("web/deep")).unwrap();
    for name in [
        "b.jsonl",
        "a.txt",
        "c.csv",
        "web/d.jsonl.gz",
        "web/deep/e.parquet",
    ] {
        service.roots.add_data(name, "x");
    }
    let mut seen = Vec::new();
    let mut path = "/files?limit=1".to_owned();
    loop {
        let page: Page<FileEntry> = service.get(&path).await;
        assert_eq!(page.items.len(), 1, "{path}");
        seen.extend(page.items);
        let Some(next) = page.next else { break };
        path = format!("/files?limit=1&cursor={next}");
    }
    let shown: Vec<_> = seen
        .iter()
        .map(|e| (e.path.as_str(), e.kind, e.bytes))
        .collect();
    let expected = [
        ("a.txt", FileKind::Dataset, Some(1)),
        ("b.jsonl", FileKind::Dataset, Some(1)),
        ("web", FileKind::Directory, None),
    ];
    assert_eq!(shown, expected);
    let below: Page<FileEntry> = service.get("/files?under=web/").await;
    let shown: Vec<_> = below
        .items
        .iter()
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(shown, ["web/d.jsonl.gz", "web/deep"]);
    let root: Page<FileEntry> = service.get("/files?under=").await;
    assert_eq!(root.items, seen);

    let body = json!({"model": "llama_gqa", "datasets": [seen[0].path]});
    let posted = service.post("/jobs", &body).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let _: Job = posted.json().await.unwrap();
    service.finish().await;
}

#[tokio::test]
async fn nothing_outside_of_a_root_is_told() {
    let service = Service::start().await;
    service.roots.add_data("a.txt", "x");
    symlink("/", service.roots.data().join("up")).unwrap();
    for (path, code, field) in [
        ("/files?under=..", ErrorCode::PathOutsideRoot, "under"),
        ("/files?under=/etc", ErrorCode::PathOutsideRoot, "under"),
        ("/files?under=up", ErrorCode::PathOutsideRoot, "under"),
        ("/files?under=up/etc", ErrorCode::PathOutsideRoot, "under"),
        ("/files?under=none", ErrorCode::DatasetUnreadable, "under"),
        ("/files?under=a.txt", ErrorCode::DatasetUnreadable, "under"),
        (
            "/models?under=none",
            ErrorCode::CheckpointUnreadable,
            "under",
        ),
        ("/models?under=..%2f", ErrorCode::PathOutsideRoot, "under"),
        ("/models?under=%00", ErrorCode::PathOutsideRoot, "under"),
        ("/models?limit=0", ErrorCode::InvalidRequest, "limit"),
        ("/models?path=x", ErrorCode::InvalidRequest, "path"),
    ] {
        let (found, fields, detail) = refusal(service.send(Method::GET, path).await).await;
        assert_eq!((found, &*fields[0]), (code, field), "{path}: {detail}");
        assert!(
            !detail.contains(service.roots.data().to_str().unwrap()),
            "{detail}"
        );
    }
    let page: Page<FileEntry> = service.get("/files").await;
    assert_eq!(page.items.len(), 1, "the link is not shown");
    service.finish().await;
}
