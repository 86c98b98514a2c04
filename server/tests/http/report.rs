//! The report of a job: what is in it, and that nothing in it is taken for markup.

use assay_api::{DocumentRow, ErrorCode, Job, JobResult, JobState, Page};
use assay_scoring::Convention;
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::service::{Service, refusal};
use crate::worker;

const LENGTHS: &[u64] = &[3, 0, 5, 7, 2, 9, 4, 8];
const MODEL: &str = "<script>alert(1)";

/// A job whose every name is an attempt to be markup, run.
async fn job(service: &Service) -> Job {
    let models = service.roots.models();
    std::fs::rename(models.join("llama_gqa"), models.join(MODEL)).unwrap();
    let documents: Vec<String> = (0..LENGTHS.len()).map(|n| n.to_string()).collect();
    let body = json!({
        "name": "</title><script>alert(2)</script>",
        "model": MODEL,
        "datasets": [{"name": "\"><img src=x onerror=alert(3)>", "documents": documents}],
        "method": [{"window": 4}, {"convention": "blocks", "window": 4, "join": "</pre><script>"}],
        "tags": {"owner": "</code><b>"},
    });
    let posted = service.post("/jobs", &body).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let job: Job = posted.json().await.unwrap();
    let blocks = Convention::Blocks {
        window: 4,
        score_tail: false,
    };
    let methods = [Convention::Rolling { window: 4 }, blocks];
    let planned = methods.map(|method| (LENGTHS, method));
    worker::run(&service.store, &planned).await;
    job
}

async fn report(service: &Service, job: &Job) -> String {
    let path = format!("/jobs/{}/report", job.id);
    let answer = service.send(Method::GET, &path).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert!(header("content-security-policy").starts_with("default-src 'none'"));
    answer.text().await.unwrap()
}

#[tokio::test]
async fn a_report_has_the_digits_of_the_api_and_is_the_same_every_time() {
    let service = Service::start().await;
    let job = job(&service).await;
    let page = report(&service, &job).await;
    assert_eq!(page, report(&service, &job).await);
    let result: JobResult = service.get(&format!("/jobs/{}/results", job.id)).await;
    assert_eq!(result.datasets.len(), 2);
    for dataset in &result.datasets {
        let numbers = [
            dataset.perplexity,
            dataset.nll,
            dataset.standard_error,
            dataset.confidence_95,
            dataset.macro_perplexity,
        ];
        for number in numbers {
            let digits = serde_json::to_string(&number.unwrap()).unwrap();
            assert!(page.contains(&format!(">{digits}<")), "{digits}");
        }
        assert!(page.contains(dataset.nll_exact.as_ref().unwrap()));
        assert!(page.contains(dataset.digest.as_ref().unwrap()));
    }
    let fixed = [
        result.model.as_ref().unwrap().digest.clone(),
        result.tokenizer.as_ref().unwrap().digest.clone(),
        job.id.to_string(),
        "assay submit --wait --file -".to_owned(),
        "Numerics version".to_owned(),
    ];
    for text in fixed.iter().chain(&result.device_kinds) {
        assert!(page.contains(text), "{text}");
    }
    let worst: Page<DocumentRow> = service
        .get(&format!(
            "/jobs/{}/documents?dataset=%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(3)%3E&order=worst&limit=1",
            job.id
        ))
        .await;
    let mean = worst.items[0].nll / worst.items[0].scored_tokens as f64;
    let mean = serde_json::to_string(&mean).unwrap();
    assert!(page.contains(&mean), "{mean}");
    assert_eq!(page.matches("class=\"histogram\"").count(), 2);
    service.finish().await;
}

#[tokio::test]
async fn nothing_of_a_job_is_taken_for_markup_and_nothing_is_loaded() {
    let service = Service::start().await;
    let job = job(&service).await;
    let page = report(&service, &job).await;
    for element in [
        "<script", "<img", "<b>", "<link", "<iframe", "<base", "<form", "<object",
    ] {
        assert!(!page.contains(element), "{element}");
    }
    for reference in ["src=x", "http://", "https://", "url(", "@import"] {
        let outside = page.replace("src=x onerror", "");
        assert!(!outside.contains(reference), "{reference}");
    }
    for text in [
        "&lt;script&gt;alert(1)",
        "&lt;img src=x",
        "&lt;/title&gt;&lt;script&gt;alert(2)",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let count = |text: &str| page.matches(text).count();
    assert_eq!(count("</title>"), count("<title>"));
    assert_eq!(count("</pre>"), 1);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    service.finish().await;
}

#[tokio::test]
async fn a_job_has_a_report_once_it_has_ended_however_it_did() {
    let service = Service::start().await;
    let body = json!({"model": "llama_gqa", "datasets": [{"documents": ["a"]}]});
    let job: Job = service.post("/jobs", &body).await.json().await.unwrap();
    let path = format!("/jobs/{}", job.id);
    let early = service.send(Method::GET, &format!("{path}/report")).await;
    let (code, _, detail) = refusal(early).await;
    assert_eq!(code, ErrorCode::JobNotEnded);
    assert!(
        detail.contains("queued") && detail.contains("/partial"),
        "{detail}"
    );

    let cancelled: Job = service
        .send(Method::DELETE, &path)
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    let page = report(&service, &job).await;
    assert!(page.contains("The job was cancelled"), "{page}");
    assert!(page.contains("did not come to an end"));
    assert!(!page.contains("NaN") && !page.contains("inf"));

    let none = "/jobs/01932c07-209c-7f3c-a4ac-6f2b5f9f0a51/report";
    let (code, _, _) = refusal(service.send(Method::GET, none).await).await;
    assert_eq!(code, ErrorCode::NotFound);
    service.finish().await;
}
