//! Uploads: what is stored, what is refused, and when files go.

use assay_api::{ErrorCode, Job, Page, Upload};
use assay_testkit::{LIMIT, eventually};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::service::{Service, UPLOAD_LIMIT, refusal};

const LINE: &str = "{\"text\": \"Call me Ishmael.\"}\n";

fn job(upload: &str) -> serde_json::Value {
    json!({"model": "llama_gqa", "datasets": [{"upload": upload}]})
}

#[tokio::test]
async fn an_upload_can_be_listed_replaced_and_deleted() {
    let service = Service::start().await;
    let first = service.put("a.jsonl", LINE).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    assert_eq!(first.headers()["location"], "/datasets/a.jsonl");
    let first: Upload = first.json().await.unwrap();
    assert_eq!((&*first.name, first.bytes), ("a.jsonl", LINE.len() as u64));
    assert!(first.digest.starts_with("sha256:"));

    let again = service.put("a.jsonl", LINE).await;
    assert_eq!(again.status(), StatusCode::OK);
    assert_eq!(service.files().len(), 1);
    let other = service.put("a.jsonl", "{\"text\": \"x\"}\n").await;
    assert_eq!(other.status(), StatusCode::OK);
    let other: Upload = other.json().await.unwrap();
    assert_ne!(other.digest, first.digest);
    // What nothing needs any longer is gone.
    assert_eq!(
        service.files(),
        [other.digest.trim_start_matches("sha256:")]
    );
    assert_eq!(service.get::<Upload>("/datasets/a.jsonl").await, other);

    service.put("B", LINE).await;
    service.put("b", LINE).await;
    let page: Page<Upload> = service.get("/datasets?limit=2").await;
    let names: Vec<&str> = page.items.iter().map(|upload| &*upload.name).collect();
    assert_eq!(
        (names, page.next.as_deref()),
        (vec!["B", "a.jsonl"], Some("a.jsonl"))
    );
    let page: Page<Upload> = service.get("/datasets?cursor=a.jsonl").await;
    assert_eq!((&*page.items[0].name, page.next), ("b", None));

    // Two names of the same bytes: the file goes with the last one.
    for (name, left) in [("b", 2), ("B", 1), ("a.jsonl", 0)] {
        let deleted = service
            .send(Method::DELETE, &format!("/datasets/{name}"))
            .await;
        assert_eq!(deleted.json::<Upload>().await.unwrap().name, name);
        assert_eq!(service.files().len(), left);
        for method in [Method::GET, Method::DELETE] {
            let gone = service.send(method, &format!("/datasets/{name}")).await;
            assert_eq!(refusal(gone).await.0, ErrorCode::NotFound);
        }
    }
    service.finish().await;
}

#[tokio::test]
async fn what_is_not_the_file_itself_is_refused() {
    let service = Service::start().await;
    for name in [".hidden", "a%20b", "%C3%A9", "%FF", "-x", &"x".repeat(129)] {
        let (code, fields, detail) = refusal(service.put(name, LINE).await).await;
        assert_eq!(
            (code, &*fields),
            (ErrorCode::InvalidRequest, &["name".to_owned()][..])
        );
        assert!(detail.contains("128"), "{detail}");
    }
    let (code, fields, _) = refusal(service.put("empty", "").await).await;
    assert_eq!(
        (code, &*fields),
        (ErrorCode::InvalidRequest, &["body".to_owned()][..])
    );
    for (header, value) in [
        ("content-type", "multipart/form-data; boundary=x"),
        ("content-encoding", "gzip"),
    ] {
        let request = service
            .request(Method::PUT, "/datasets/a")
            .header(header, value);
        let (code, _, detail) = refusal(request.body(LINE).send().await.unwrap()).await;
        assert_eq!(code, ErrorCode::UnsupportedMediaType);
        assert!(detail.contains(value), "{detail}");
    }
    let method = refusal(service.send(Method::PATCH, "/datasets/a").await).await;
    assert_eq!(method.0, ErrorCode::MethodNotAllowed);
    let (code, _, _) = refusal(service.put("inspect", LINE).await).await;
    assert_eq!(code, ErrorCode::MethodNotAllowed);
    assert!(service.files().is_empty());
    assert!(
        service
            .get::<Page<Upload>>("/datasets")
            .await
            .items
            .is_empty()
    );
    service.finish().await;
}

#[tokio::test]
async fn the_limit_holds_with_and_without_a_declared_length() {
    let service = Service::start().await;
    let limit = usize::try_from(UPLOAD_LIMIT).unwrap();
    assert_eq!(
        service.put("a", vec![b'x'; limit]).await.status(),
        StatusCode::CREATED
    );
    let large = vec![b'x'; limit + 1];
    let (code, _, detail) = refusal(service.put("b", large).await).await;
    assert_eq!(code, ErrorCode::PayloadTooLarge);
    assert!(
        detail.contains("1048576") && detail.contains("--upload-limit"),
        "{detail}"
    );

    // In chunks, so that the length shows only at the end.
    let mut stream = TcpStream::connect(&service.address).await.unwrap();
    let head = "PUT /datasets/b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat();
    for _ in 0..17 {
        stream.write_all(&chunk).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.contains("E0006"),
        "{answer}"
    );

    // With leave asked for: refused before anything is sent.
    let mut stream = TcpStream::connect(&service.address).await.unwrap();
    let head = "PUT /datasets/b HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: 99999999\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(service.files().len(), 1);
    service.finish().await;
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_nothing() {
    let service = Service::start().await;
    for head in [
        "content-length: 1000\r\n\r\nabc",
        "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let mut stream = TcpStream::connect(&service.address).await.unwrap();
        let head = format!("PUT /datasets/a HTTP/1.1\r\nhost: localhost\r\n{head}");
        stream.write_all(head.as_bytes()).await.unwrap();
        eventually("the upload to begin", LIMIT, async || {
            (!service.files().is_empty()).then_some(())
        })
        .await;
        // Only the sending half, so that the answer can be read.
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        // hyper may close without an answer: nobody is owed one.
        let _ = stream.read_to_string(&mut answer).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
        eventually("the rest to go", LIMIT, async || {
            service.files().is_empty().then_some(())
        })
        .await;
    }
    assert!(
        service
            .get::<Page<Upload>>("/datasets")
            .await
            .items
            .is_empty()
    );
    service.finish().await;
}

#[tokio::test]
async fn the_last_of_several_uploads_at_a_time_stands() {
    let service = Service::start().await;
    let uploads = (0..24).map(|i| service.put("a.txt", vec![b'a' + (i % 8); 100_000]));
    let mut digests = Vec::new();
    for answer in futures_util::future::join_all(uploads).await {
        assert!(answer.status().is_success(), "{}", answer.status());
        digests.push(answer.json::<Upload>().await.unwrap().digest);
    }
    let stands: Upload = service.get("/datasets/a.txt").await;
    assert!(digests.contains(&stands.digest));
    assert_eq!(
        service.files(),
        [stands.digest.trim_start_matches("sha256:")]
    );
    service.finish().await;
}

#[tokio::test]
async fn the_same_bytes_uploaded_and_deleted_at_once_are_never_lost() {
    let service = Service::start().await;
    for _ in 0..20 {
        service.put("old", LINE).await;
        let (put, deleted) = tokio::join!(
            service.put("new", LINE),
            service.send(Method::DELETE, "/datasets/old")
        );
        assert!(put.status().is_success() && deleted.status().is_success());
        let digest = put.json::<Upload>().await.unwrap().digest;
        assert_eq!(service.files(), [digest.trim_start_matches("sha256:")]);
        service.send(Method::DELETE, "/datasets/new").await;
        assert!(service.files().is_empty());
    }
    service.finish().await;
}

#[tokio::test]
async fn a_job_keeps_the_bytes_it_was_posted_with() {
    let service = Service::start().await;
    let first: Upload = service.put("a.jsonl", LINE).await.json().await.unwrap();
    let posted = service.post("/jobs", &job("a.jsonl")).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let posted: Job = posted.json().await.unwrap();
    assert_eq!(
        posted.datasets[0].upload_digest.as_ref(),
        Some(&first.digest)
    );
    assert_eq!(posted.datasets[0].name(), "a.jsonl");

    service.put("a.jsonl", "{\"text\": \"other\"}\n").await;
    assert_eq!(service.files().len(), 2);
    service.send(Method::DELETE, "/datasets/a.jsonl").await;
    assert_eq!(
        service.files(),
        [first.digest.trim_start_matches("sha256:")]
    );
    let (code, fields, detail) = refusal(service.post("/jobs", &job("a.jsonl")).await).await;
    assert_eq!(code, ErrorCode::DatasetUnreadable);
    assert_eq!(fields, ["datasets[0].upload"]);
    assert!(detail.contains("PUT /datasets/a.jsonl"), "{detail}");

    // Ended, it needs them no longer; the next removal of the same bytes takes the file along.
    service
        .send(Method::DELETE, &format!("/jobs/{}", posted.id))
        .await;
    service.put("b.jsonl", LINE).await;
    service.send(Method::DELETE, "/datasets/b.jsonl").await;
    assert!(service.files().is_empty());
    let kept: Job = service.get(&format!("/jobs/{}", posted.id)).await;
    assert_eq!(kept.datasets, posted.datasets);
    service.finish().await;
}

#[tokio::test]
async fn posting_and_deleting_at_once_leaves_a_refusal_or_the_file() {
    let service = Service::start().await;
    for round in 0..20 {
        let name = format!("{round}.jsonl");
        let line = format!("{{\"text\": \"{round}\"}}\n");
        let upload: Upload = service.put(&name, line).await.json().await.unwrap();
        let path = format!("/datasets/{name}");
        let request = job(&name);
        let (posted, deleted) = tokio::join!(
            service.post("/jobs", &request),
            service.send(Method::DELETE, &path)
        );
        assert_eq!(deleted.status(), StatusCode::OK);
        let file = upload.digest.trim_start_matches("sha256:").to_owned();
        if posted.status() == StatusCode::CREATED {
            assert!(service.files().contains(&file));
        } else {
            assert_eq!(refusal(posted).await.0, ErrorCode::DatasetUnreadable);
            assert!(!service.files().contains(&file));
        }
    }
    service.finish().await;
}
