//! The HTTP surface apart from the numbers.

use std::collections::BTreeSet;

use assay_api::{ErrorCode, Job, JobState, Page, Readiness};
use assay_testkit::{LIMIT, Roots, Signal, eventually, signal};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{problem, refusal};
use crate::service::Service;

/// Roots with what [`job`] names.
pub(crate) fn roots() -> Roots {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    roots.add_data("a.txt", "Call me Ishmael.");
    roots
}

/// A job of one small document.
pub(crate) fn job() -> Value {
    json!({"model": "llama_gqa", "datasets": ["a.txt"], "reuse": false})
}

#[tokio::test]
async fn a_key_makes_one_job() {
    let service = Service::start(roots()).await;
    let post = async |key: &str, body: String| {
        let request = service.client.request(Method::POST, "/jobs");
        let request = request.header("Content-Type", "application/json");
        request
            .header("Idempotency-Key", key)
            .body(body)
            .send()
            .await
            .unwrap()
    };
    let first = post("a", job().to_string()).await;
    assert_eq!(first.status(), StatusCode::CREATED);
    let location = first.headers()["location"].to_str().unwrap().to_owned();
    let first: Job = first.json().await.unwrap();
    assert_eq!(location, format!("/jobs/{}", first.id));
    assert_eq!(first.state, JobState::Queued);

    // Compared as JSON: order and white space do not count.
    let same = "{ \"reuse\": false, \"datasets\": [\"a.txt\"],\n \"model\": \"llama_gqa\" }";
    let again = post("a", same.to_owned()).await;
    assert_eq!(again.status(), StatusCode::OK);
    assert_eq!(again.headers()["location"], location.as_str());
    let again: Job = again.json().await.unwrap();
    assert_eq!(again, first);

    let mut other = job();
    other["name"] = json!("x");
    let conflict = refusal(post("a", other.to_string()).await).await;
    assert_eq!(
        (conflict.0, conflict.1),
        (409, ErrorCode::IdempotencyConflict)
    );
    assert!(conflict.3.contains(&first.id.to_string()), "{}", conflict.3);

    // Of many at once exactly one makes the job.
    let body = || other.to_string();
    let answers = tokio::join!(
        post("b", body()),
        post("b", body()),
        post("b", body()),
        post("b", body())
    );
    let mut made = 0;
    let mut ids = BTreeSet::new();
    for answer in [answers.0, answers.1, answers.2, answers.3] {
        made += u32::from(answer.status() == StatusCode::CREATED);
        ids.insert(answer.json::<Job>().await.unwrap().id);
    }
    assert_eq!((made, ids.len()), (1, 1));
    service.finish().await;
}

#[tokio::test]
async fn lists_come_in_pages() {
    let roots = roots();
    let documents: Vec<String> = (0..9)
        .map(|i| json!({"text": format!("document {i}")}).to_string())
        .collect();
    roots.add_data("nine.jsonl", documents.join("\n"));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let mut ids = Vec::new();
    for part in ["x", "x", "y"] {
        let mut body = job();
        // A shard each.
        body["datasets"] = json!(["nine.jsonl", "a.txt", {"path": "a.txt", "name": "again"}]);
        body["tags"] = json!({"part": part});
        ids.push(service.client.submit(&body).await);
    }
    for id in &ids {
        service.client.succeeded(*id).await;
    }
    ids.reverse();
    let listed = async |query: &str| {
        let jobs: Vec<Job> = service.client.all(&format!("/jobs?{query}")).await;
        jobs.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    assert_eq!(listed("limit=1").await, ids, "newest first");
    assert_eq!(listed("limit=2&tag=part:x").await, ids[1..]);
    assert_eq!(listed("limit=2&state=succeeded").await, ids);
    assert!(listed("limit=2&state=failed").await.is_empty());

    let id = ids[0];
    let page: Page<Value> = service
        .client
        .read(&format!("/jobs/{id}/documents?dataset=nine.jsonl&limit=4"))
        .await;
    assert_eq!((page.items.len(), page.next.as_deref()), (4, Some("4")));
    let rows: Vec<Value> = service
        .client
        .all(&format!("/jobs/{id}/documents?dataset=nine.jsonl&limit=4"))
        .await;
    let indices: Vec<_> = rows
        .iter()
        .map(|row| row["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, (0..9).collect::<Vec<_>>());
    let shards: Vec<Value> = service
        .client
        .all(&format!("/jobs/{id}/shards?limit=2"))
        .await;
    let names: Vec<_> = shards
        .iter()
        .map(|shard| shard["dataset"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["nine.jsonl", "a.txt", "again"]);
    assert_eq!(service.client.workers().await.len(), 1);

    for (path, status, code) in [
        ("/nowhere".to_owned(), 404, ErrorCode::NotFound),
        ("/jobs/7".to_owned(), 404, ErrorCode::NotFound),
        (
            "/jobs/00000000-0000-7000-8000-000000000000/shards".to_owned(),
            404,
            ErrorCode::NotFound,
        ),
        (
            format!("/jobs/{id}/documents?dataset=none"),
            404,
            ErrorCode::NotFound,
        ),
        (
            format!("/jobs/{id}/documents"),
            422,
            ErrorCode::InvalidRequest,
        ),
        ("/jobs?limit=0".to_owned(), 422, ErrorCode::InvalidRequest),
        ("/jobs?cursor=x".to_owned(), 422, ErrorCode::InvalidRequest),
        ("/jobs?page=2".to_owned(), 422, ErrorCode::InvalidRequest),
    ] {
        let problem = problem(service.client.get(&path).await).await;
        assert_eq!((problem.status, problem.code), (status, code), "{path}");
    }
    let delete = |path: &str| service.client.request(Method::DELETE, path).send();
    let ended = problem(delete(&format!("/jobs/{id}")).await.unwrap()).await;
    assert_eq!((ended.status, ended.code), (409, ErrorCode::JobEnded));
    let method = problem(delete("/jobs").await.unwrap()).await;
    assert_eq!(
        (method.status, method.code),
        (405, ErrorCode::MethodNotAllowed)
    );
    service.finish().await;
}

#[tokio::test]
async fn results_before_the_end_are_incomplete() {
    let service = Service::start(roots()).await;
    let id = service.client.submit(&job()).await;
    let result: assay_api::JobResult = service.client.read(&format!("/jobs/{id}/results")).await;
    assert!(!result.complete);
    assert_eq!((&result.model, &result.tokenizer), (&None, &None));
    assert_eq!(result.datasets.len(), 1);
    assert_eq!(
        (result.datasets[0].nll, result.datasets[0].scored_tokens),
        (None, 0)
    );
    assert!(service.client.documents(id, "a.txt").await.is_empty());
    assert!(service.client.shards(id).await.is_empty());
    service.finish().await;
}

#[tokio::test]
async fn the_openapi_document_is_the_committed_one() {
    let service = Service::start(roots()).await;
    let served = service.client.get("/openapi.json").await;
    assert_eq!(served.headers()["content-type"], "application/json");
    let committed = include_str!("../../openapi/openapi.json");
    assert!(
        served.text().await.unwrap() == committed,
        "write it anew: assay-server openapi > openapi/openapi.json"
    );
    service.finish().await;
}

#[tokio::test]
async fn the_manuals_need_no_other_host() {
    let service = Service::start(roots()).await;
    let errors = service.client.get("/errors").await.text().await.unwrap();
    assert!(
        ErrorCode::ALL
            .iter()
            .all(|code| errors.contains(code.as_str()))
    );

    let moved = service.client.get("/docs").await;
    assert!(moved.status().is_redirection(), "{}", moved.status());
    assert_eq!(moved.headers()["location"], "/docs/");
    let page = service.client.get("/docs/").await.text().await.unwrap();
    let links: Vec<&str> = ["src=\"", "href=\""]
        .iter()
        .flat_map(|attribute| page.split(attribute).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(links.len() >= 4, "{page}");
    for link in links {
        assert!(!link.contains("//"), "{link} leads elsewhere");
        let path = link.trim_start_matches("./");
        let answer = service.client.get(&format!("/docs/{path}")).await;
        assert_eq!(answer.status(), StatusCode::OK, "{link}");
    }
    let settings = service
        .client
        .get("/docs/swagger-initializer.js")
        .await
        .text()
        .await
        .unwrap();
    assert!(settings.contains("\"/openapi.json\""), "{settings}");
    assert!(
        settings.contains("\"validatorUrl\": \"none\""),
        "{settings}"
    );
    assert!(!settings.contains("://"), "{settings}");
    service.finish().await;
}

#[tokio::test]
async fn the_service_says_when_its_database_is_away() {
    let mut service = Service::start_on_own_postgres(roots()).await;
    service.add_worker("cpu:0");
    eventually("the worker", LIMIT, async || {
        let ready: Readiness = service.client.read("/readyz").await;
        (ready.workers == 1).then_some(())
    })
    .await;
    let before = service.client.submit(&job()).await;
    service.client.succeeded(before).await;

    let cluster = &service.postgres().cluster;
    signal(cluster.pid(), Signal::QUIT);
    cluster.ended().await;
    let answer = service.client.get("/readyz").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let ready: Readiness = answer.json().await.unwrap();
    assert_eq!((ready.database, ready.workers), (false, 0));
    assert_eq!(
        service.client.get("/healthz").await.status(),
        StatusCode::OK
    );
    let refused = refusal(service.client.post(&job()).await).await;
    assert_eq!((refused.0, refused.1), (503, ErrorCode::Unavailable));
    // Of the process there is everything to be told, of the ledger nothing.
    let metrics = service.client.metrics().await;
    assert_eq!(metrics.count("assay_database_up", &[]), 0);
    let refusals = [("method", "POST"), ("route", "/jobs"), ("status", "5xx")];
    let durations = "assay_http_request_duration_seconds_count";
    assert_eq!(metrics.count(durations, &refusals), 1);
    assert!(!metrics.0.contains_key("assay_jobs"));

    service
        .postgres()
        .cluster
        .restart_immediate()
        .await
        .unwrap();
    service.client.ready().await;
    service.client.run(&job()).await;
    eventually("the ledger in the metrics", LIMIT, async || {
        let metrics = service.client.metrics().await;
        (metrics.count("assay_database_up", &[]) == 1).then_some(())
    })
    .await;
    service.finish().await;
}
