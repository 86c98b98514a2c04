//! Uploaded datasets: names, replacement, removal, and what jobs keep of them.

use std::fs;
use std::io::{Cursor, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use assay_api::ErrorCode::{DataDiffers, NotFound, PayloadTooLarge};
use assay_api::{JobId, Upload};
use assay_testkit::{LIMIT, Roots, eventually};
use reqwest::{Body, Method, StatusCode};
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;

use crate::client::{problem, refusal};
use crate::service::Service;

const MODEL: &str = "llama_gqa";

fn roots() -> Roots {
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data("old.txt", "Call me Ishmael.");
    roots.add_data("new.txt", "Some years ago, never mind how long precisely.");
    roots
}

async fn delete(service: &Service, name: &str) -> reqwest::Response {
    let request = service
        .client
        .request(Method::DELETE, &format!("/datasets/{name}"));
    request.send().await.unwrap()
}

fn job(dataset: &Value) -> Value {
    json!({"model": MODEL, "datasets": [dataset], "reuse": false})
}

async fn sum(service: &Service, id: JobId) -> Option<String> {
    service.client.succeeded(id).await.datasets[0]
        .nll_exact
        .clone()
}

/// The files below a directory.
fn walk(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| {
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path())
            } else {
                vec![entry.path()]
            }
        })
        .collect()
}

/// Files below the directory of uploads.
fn stored(service: &Service) -> usize {
    walk(&service.roots.state().join("uploads")).len()
}

#[tokio::test]
async fn bytes_that_are_not_those_uploaded_are_refused() {
    let mut service = Service::start(roots()).await;
    service
        .client
        .upload("a.txt", b"what was sent".to_vec())
        .await;
    let uploads = service.roots.state().join("uploads");
    let file = walk(&uploads).pop().expect("the upload is stored");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "what somebody put there").unwrap();
    service.add_worker("cpu:0");
    let id = service
        .client
        .submit(&job(&json!({"upload": "a.txt"})))
        .await;
    let error = service.client.failed(id).await;
    assert_eq!(error.code, DataDiffers, "{error:?}");
    assert!(error.detail.contains("upload it again"), "{error:?}");
    service.finish().await;
}

#[tokio::test]
async fn a_job_keeps_the_upload_it_was_posted_with() {
    let mut service = Service::start(roots()).await;
    let [old, new] = ["old", "new"].map(|name| {
        let path = service.roots.data().join(format!("{name}.txt"));
        fs::read(path).unwrap()
    });
    let first = service.client.put("a.txt", old.clone()).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    let first: Upload = first.json().await.unwrap();
    assert_eq!(
        (first.name.as_str(), first.bytes),
        ("a.txt", old.len() as u64)
    );
    assert!(first.digest.starts_with("sha256:"), "{first:?}");
    // The same bytes again, and under another name: one file.
    let again = service.client.put("a.txt", old.clone()).await;
    assert_eq!(again.status(), StatusCode::OK);
    service.client.upload("b.txt", old.clone()).await;
    assert_eq!(stored(&service), 1);

    // Nothing runs yet.
    let posted = service
        .client
        .submit(&job(&json!({"upload": "a.txt"})))
        .await;
    let shown = service.client.job(posted).await;
    assert_eq!(
        shown.datasets[0].upload_digest.as_deref(),
        Some(first.digest.as_str())
    );
    let replaced = service.client.put("a.txt", new.clone()).await;
    assert_eq!(replaced.status(), StatusCode::OK);
    let replaced: Upload = replaced.json().await.unwrap();
    assert_ne!(replaced.digest, first.digest);
    let listed: Vec<Upload> = service.client.all("/datasets?limit=1").await;
    let names: Vec<&str> = listed.iter().map(|upload| upload.name.as_str()).collect();
    assert_eq!(names, ["a.txt", "b.txt"]);
    let shown: Upload = service.client.read("/datasets/a.txt").await;
    assert_eq!(shown, replaced);
    let later = service
        .client
        .submit(&job(&json!({"upload": "a.txt"})))
        .await;
    // Both names go; the open jobs still need their files.
    for name in ["a.txt", "b.txt"] {
        let gone = delete(&service, name).await;
        assert!(gone.status().is_success(), "{}", gone.status());
    }
    assert_eq!(stored(&service), 2);
    assert!(
        service
            .client
            .all::<Upload>("/datasets?limit=10")
            .await
            .is_empty()
    );
    for answer in [
        service.client.get("/datasets/a.txt").await,
        delete(&service, "a.txt").await,
    ] {
        let problem = problem(answer).await;
        assert_eq!((problem.status, problem.code), (404, NotFound));
    }

    service.add_worker("cpu:0");
    let by_path = service.client.submit(&job(&json!("old.txt"))).await;
    assert_eq!(sum(&service, posted).await, sum(&service, by_path).await);
    let by_path = service.client.submit(&job(&json!("new.txt"))).await;
    assert_eq!(sum(&service, later).await, sum(&service, by_path).await);
    service.finish().await;
}

#[tokio::test]
async fn an_upload_that_nothing_needs_goes_with_its_name() {
    let service = Service::start(roots()).await;
    service.client.upload("a.txt", "one").await;
    service.client.upload("b.txt", "two").await;
    assert_eq!(stored(&service), 2);
    assert!(delete(&service, "a.txt").await.status().is_success());
    eventually("the file to go", LIMIT, async || {
        (stored(&service) == 1).then_some(())
    })
    .await;
    service.finish().await;
}

#[tokio::test]
async fn uploads_at_fault_leave_nothing() {
    const LIMIT_BYTES: usize = 100_000;
    let limit = LIMIT_BYTES.to_string();
    let service = Service::start_with(roots(), &["--upload-limit", &limit]).await;
    let exact = service
        .client
        .upload("exact.txt", vec![b'x'; LIMIT_BYTES])
        .await;
    assert_eq!(exact.bytes, LIMIT_BYTES as u64);
    // Said in the header, and found out on the way.
    let declared = vec![b'x'; LIMIT_BYTES + 1];
    let chunked = Body::wrap_stream(ReaderStream::new(Cursor::new(declared.clone())));
    for body in [Body::from(declared), chunked] {
        let (status, code, _, detail) = refusal(service.client.put("large.txt", body).await).await;
        assert_eq!((status, code), (413, PayloadTooLarge), "{detail}");
        assert!(detail.contains(&limit), "{detail}");
    }
    let long = "x".repeat(129);
    for name in [
        ".hidden",
        "-dash",
        "a%20b",
        "a%2Fb",
        "%2e%2e%2fa",
        "a%00b",
        "%C3%A4",
        &long,
    ] {
        let problem = problem(service.client.put(name, "text").await).await;
        assert!((400..500).contains(&problem.status), "{name}: {problem:?}");
    }
    // A caller that goes away half way.
    let mut broken = TcpStream::connect(service.address()).unwrap();
    let head =
        "PUT /datasets/broken.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\nhalf";
    broken.write_all(head.as_bytes()).unwrap();
    eventually("the half upload", LIMIT, async || {
        (stored(&service) == 2).then_some(())
    })
    .await;
    drop(broken);
    eventually("the half upload to go", LIMIT, async || {
        (stored(&service) == 1).then_some(())
    })
    .await;
    let missing = service.client.get("/datasets/broken.txt").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    let listed: Vec<Upload> = service.client.all("/datasets?limit=10").await;
    assert_eq!(listed, [exact]);
    service.finish().await;
}
