//! Uploads: names for digests, and whether a file is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use assay_api::{DatasetRef, JobRequest};
use assay_store::Creation;

use crate::support::{Ledger, request};

fn of_upload(name: &str, digest: &str) -> JobRequest {
    JobRequest {
        datasets: vec![DatasetRef {
            upload: Some(name.to_owned()),
            upload_digest: Some(digest.to_owned()),
            ..DatasetRef::default()
        }],
        ..request(&[])
    }
}

#[tokio::test]
async fn a_name_stands_for_its_latest_upload() {
    let ledger = Ledger::fresh().await;
    let store = &ledger.store;
    let first = store.put_upload("b.jsonl", "sha256:1", 10).await.unwrap();
    assert_eq!(first.replaced, None);
    let second = store.put_upload("b.jsonl", "sha256:2", 20).await.unwrap();
    assert_eq!(second.replaced.as_deref(), Some("sha256:1"));
    assert!(second.upload.created_at >= first.upload.created_at);
    assert_eq!(
        store.upload("b.jsonl").await.unwrap(),
        Some(second.upload.clone())
    );
    assert_eq!(
        (&*second.upload.digest, second.upload.bytes),
        ("sha256:2", 20)
    );
    assert_eq!(store.upload("a").await.unwrap(), None);

    for name in ["B", "a", "_", "c"] {
        store.put_upload(name, "sha256:1", 10).await.unwrap();
    }
    let names = async |after, limit| {
        let uploads = store.uploads(after, limit).await.unwrap();
        uploads.into_iter().map(|u| u.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 10).await, ["B", "_", "a", "b.jsonl", "c"]);
    assert_eq!(names(Some("_"), 2).await, ["a", "b.jsonl"]);

    let deleted = store.delete_upload("b.jsonl").await.unwrap();
    assert_eq!(deleted, Some(second.upload));
    assert_eq!(store.delete_upload("b.jsonl").await.unwrap(), None);
}

#[tokio::test]
async fn a_file_is_needed_by_names_and_open_jobs() {
    let ledger = Ledger::fresh().await;
    let store = &ledger.store;
    assert!(!store.digest_in_use("sha256:1").await.unwrap());
    store.put_upload("a", "sha256:1", 1).await.unwrap();
    store.put_upload("b", "sha256:1", 1).await.unwrap();
    let job = ledger.job_of(&of_upload("a", "sha256:1")).await;
    store.delete_upload("a").await.unwrap();
    assert!(store.digest_in_use("sha256:1").await.unwrap());
    store.delete_upload("b").await.unwrap();
    assert!(store.digest_in_use("sha256:1").await.unwrap());
    assert_eq!(
        store.if_digest_unused("sha256:1", || ()).await.unwrap(),
        None
    );
    store.cancel_job(job).await.unwrap();
    assert!(!store.digest_in_use("sha256:1").await.unwrap());
    let removed = store.if_digest_unused("sha256:1", || 7).await.unwrap();
    assert_eq!(removed, Some(7));
}

#[tokio::test]
async fn a_job_is_not_made_of_an_upload_that_is_gone() {
    let ledger = Ledger::fresh().await;
    let store = &ledger.store;
    store.put_upload("a", "sha256:1", 1).await.unwrap();
    store.put_upload("a", "sha256:2", 1).await.unwrap();
    for (name, digest) in [("a", "sha256:1"), ("b", "sha256:2")] {
        let made = ledger.create(&of_upload(name, digest), Some("k")).await;
        let Creation::UploadChanged(changed) = made else {
            panic!("{made:?}")
        };
        assert_eq!(changed, name);
    }
    let made = ledger.create(&of_upload("a", "sha256:2"), Some("k")).await;
    let Creation::Created(job) = made else {
        panic!("{made:?}: the key was not used up")
    };
    assert_eq!(job.datasets[0].upload_digest.as_deref(), Some("sha256:2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_put_many_times_at_once_stands_for_one_of_them() {
    let ledger = Arc::new(Ledger::fresh().await);
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..16 {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move {
            if n % 4 == 3 {
                ledger.store.delete_upload("a").await.unwrap();
                return;
            }
            let digest = format!("sha256:{n}");
            let put = ledger.store.put_upload("a", &digest, n).await.unwrap();
            assert_eq!(put.upload.digest, digest);
        });
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    assert!(ledger.store.uploads(None, 10).await.unwrap().len() <= 1);
}

/// A file is put and removed at once: whatever comes first, a name that was given and whose file
/// was found afterwards keeps its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_not_removed_from_under_its_name() {
    let ledger = Ledger::fresh().await;
    let file = Arc::new(AtomicBool::new(false));
    for _ in 0..30 {
        let put = async {
            file.store(true, Ordering::SeqCst);
            ledger.store.put_upload("a", "sha256:1", 1).await.unwrap();
            file.load(Ordering::SeqCst)
        };
        let remove = async {
            ledger
                .store
                .if_digest_unused("sha256:1", || file.store(false, Ordering::SeqCst))
                .await
                .unwrap()
        };
        let (found, _) = tokio::join!(put, remove);
        if found {
            assert!(file.load(Ordering::SeqCst));
            let removed = ledger.store.if_digest_unused("sha256:1", || ()).await;
            assert_eq!(removed.unwrap(), None);
        }
        ledger.store.delete_upload("a").await.unwrap();
    }
}
