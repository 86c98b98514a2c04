//! The dashboard, as far as it does not matter whether it is built: the page and what is missing.

use assay_api::ErrorCode;
use reqwest::{Method, StatusCode};

use crate::service::{Service, refusal};

#[tokio::test]
async fn the_page_is_asked_for_anew_and_sent_once() {
    let service = Service::start().await;
    let page = service.send(Method::GET, "/ui/").await;
    assert_eq!(page.status(), StatusCode::OK);
    let headers = page.headers().clone();
    let header = |name: &str| headers[name].to_str().unwrap();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert_eq!(header("cache-control"), "no-cache");
    let policy = header("content-security-policy");
    assert!(policy.starts_with("default-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = page.text().await.unwrap();
    assert!(text.contains("<title>Assay"), "{text}");

    let head = service.send(Method::HEAD, "/ui/index.html").await;
    assert_eq!(head.headers()["etag"], headers["etag"]);
    assert_eq!(head.headers()["content-length"], headers["content-length"]);
    assert_eq!(head.text().await.unwrap(), "");

    let known = service.request(Method::GET, "/ui/");
    let known = known.header("if-none-match", &headers["etag"]);
    let known = known.send().await.unwrap();
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
    assert_eq!(known.headers()["etag"], headers["etag"]);
    service.finish().await;
}

#[tokio::test]
async fn the_way_in_leads_to_the_page() {
    let service = Service::start().await;
    for path in ["/", "/ui"] {
        // The client follows redirects.
        let answer = service.send(Method::GET, path).await;
        assert_eq!(answer.url().path(), "/ui/", "{path}");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    service.finish().await;
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_and_not_the_page() {
    let service = Service::start().await;
    for path in [
        "/ui/assets/index-0.js",
        "/ui/jobs",
        "/ui//index.html",
        "/ui/../Cargo.toml",
        "/ui/%2e%2e/build.rs",
        "/ui/assets/",
    ] {
        let answer = service.send(Method::GET, path).await;
        let kind = answer.headers()["content-type"].clone();
        assert_eq!(kind, "application/problem+json", "{path}");
        let (code, _, _) = refusal(answer).await;
        assert_eq!(code, ErrorCode::NotFound, "{path}");
    }
    let (code, _, _) = refusal(service.send(Method::POST, "/ui/").await).await;
    assert_eq!(code, ErrorCode::MethodNotAllowed);
    service.finish().await;
}
