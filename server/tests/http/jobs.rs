//! What is asked of a job that no worker has taken up.

use assay_api::{Convention, DocumentRow, ErrorCode, Job, Page, TokenRow};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::service::{Service, refusal};

#[tokio::test]
async fn methods_and_documents_of_a_job_are_as_it_was_asked() {
    let service = Service::start().await;
    let body = json!({
        "model": "llama_gqa",
        "datasets": [{"documents": ["a", "b"]}, {"name": "c", "documents": ["c"]}],
        "method": [{}, {"convention": "blocks", "window": 64}],
        "token_output": true,
    });
    let posted = service.post("/jobs", &body).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let job: Job = posted.json().await.unwrap();
    let conventions: Vec<Convention> = job
        .method
        .as_slice()
        .iter()
        .map(|method| method.convention)
        .collect();
    assert_eq!(conventions, [Convention::Rolling, Convention::Blocks]);
    assert_eq!((job.datasets.len(), job.progress.datasets.len()), (2, 4));
    // The text itself is not told again.
    assert!(
        job.datasets
            .iter()
            .all(|dataset| dataset.documents.is_none())
    );
    assert!(job.token_output);

    let jobs = format!("/jobs/{}", job.id);
    let documents: Page<DocumentRow> = service
        .get(&format!("{jobs}/documents?dataset=c&method=1"))
        .await;
    assert!(documents.items.is_empty() && documents.next.is_none());
    let worst: Page<DocumentRow> = service
        .get(&format!("{jobs}/documents?dataset=c&order=worst&limit=3"))
        .await;
    assert!(worst.items.is_empty());
    let tokens: Page<TokenRow> = service
        .get(&format!("{jobs}/tokens?dataset=c&document=0"))
        .await;
    assert!(tokens.items.is_empty());
    for (query, code, field) in [
        ("documents", ErrorCode::InvalidRequest, "dataset"),
        ("documents?dataset=x", ErrorCode::NotFound, "dataset"),
        (
            "documents?dataset=c&method=2",
            ErrorCode::NotFound,
            "method",
        ),
        (
            "documents?dataset=c&method=x",
            ErrorCode::InvalidRequest,
            "method",
        ),
        (
            "documents?dataset=c&order=best",
            ErrorCode::InvalidRequest,
            "order",
        ),
        (
            "documents?dataset=c&order=worst&cursor=1",
            ErrorCode::InvalidRequest,
            "cursor",
        ),
        ("tokens?dataset=c", ErrorCode::InvalidRequest, "document"),
        (
            "tokens?dataset=c&document=-1",
            ErrorCode::InvalidRequest,
            "document",
        ),
        (
            "tokens?dataset=c&document=0&limit=10001",
            ErrorCode::InvalidRequest,
            "limit",
        ),
    ] {
        let answer = service.send(Method::GET, &format!("{jobs}/{query}")).await;
        let (found, fields, detail) = refusal(answer).await;
        assert_eq!((found, &*fields[0]), (code, field), "{query}: {detail}");
    }
    service.finish().await;
}

#[tokio::test]
async fn what_a_job_does_not_have_is_said() {
    let service = Service::start().await;
    let body = json!({"model": "llama_gqa", "datasets": [{"documents": ["a"]}]});
    let job: Job = service.post("/jobs", &body).await.json().await.unwrap();
    let tokens = format!("/jobs/{}/tokens?dataset=documents&document=0", job.id);
    let (code, _, detail) = refusal(service.send(Method::GET, &tokens).await).await;
    assert_eq!(code, ErrorCode::NotFound);
    assert!(detail.contains("\"token_output\": true"), "{detail}");

    let archive = format!("/jobs/{}/archive", job.id);
    let (code, _, detail) = refusal(service.send(Method::GET, &archive).await).await;
    assert_eq!(code, ErrorCode::JobNotEnded);
    assert!(detail.contains("queued"), "{detail}");
    service
        .send(Method::DELETE, &format!("/jobs/{}", job.id))
        .await;
    let answer = service.send(Method::GET, &archive).await;
    assert_eq!(answer.headers()["content-type"], "application/zip");
    let bytes = answer.bytes().await.unwrap();
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let kept: Job = serde_json::from_reader(zip.by_name("job.json").unwrap()).unwrap();
    assert_eq!(kept.id, job.id);
    assert_eq!(zip.len(), 2);

    let none = "/jobs/01932c07-209c-7f3c-a4ac-6f2b5f9f0a51/archive";
    let (code, _, _) = refusal(service.send(Method::GET, none).await).await;
    assert_eq!(code, ErrorCode::NotFound);
    service.finish().await;
}

#[tokio::test]
async fn a_body_may_have_4_mib() {
    let service = Service::start().await;
    let size = |bytes: usize| json!({"model": "llama_gqa", "datasets": ["x".repeat(bytes)]});
    let (code, _, _) = refusal(service.post("/jobs", &size(4 << 20)).await).await;
    assert_eq!(code, ErrorCode::PayloadTooLarge);
    let (code, _, _) = refusal(service.post("/jobs", &size((4 << 20) - 1000)).await).await;
    assert_eq!(code, ErrorCode::PathOutsideRoot);
    service.finish().await;
}
