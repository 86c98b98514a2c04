//! `GET /metrics`, as a scraper reads it.

use std::collections::BTreeSet;
use std::time::Duration;

use assay_api::{DeviceStatus, Job};
use assay_scoring::Convention;
use assay_store::NewWorker;
use assay_testkit::Exposition;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, StatusCode};
use serde_json::json;
use uuid::Uuid;

use crate::service::Service;
use crate::worker;

const MANUAL: &str = include_str!("../../../docs/operations.md");
const RULES: &str = include_str!("../../../docs/prometheus-rules.yml");

const DURATIONS: &str = "assay_http_request_duration_seconds";

async fn scrape(service: &Service) -> Exposition {
    let answer = service.send(Method::GET, "/metrics").await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(
        answer.headers()[CONTENT_TYPE],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    Exposition::parse(&answer.text().await.unwrap())
}

/// A job of 8 tokens that has succeeded, and one that nobody has planned.
async fn jobs(service: &Service) -> Job {
    let body = json!({"model": "llama_gqa", "datasets": [{"documents": ["x", "", "y"]}]});
    let posted = service.post("/jobs", &body).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let rolling = Convention::Rolling { window: 4 };
    worker::run(&service.store, &[(&[3, 0, 5], rolling)]).await;
    assert_eq!(
        service.post("/jobs", &body).await.status(),
        StatusCode::CREATED
    );
    posted.json().await.unwrap()
}

#[tokio::test]
async fn a_scrape_tells_of_the_ledger() {
    let service = Service::start().await;
    jobs(&service).await;
    let metrics = scrape(&service).await;
    for (name, labels, count) in [
        ("assay_database_up", &[][..], 1),
        (
            "assay_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))],
            1,
        ),
        ("assay_jobs", &[("state", "queued")], 1),
        ("assay_jobs", &[("state", "planning")], 0),
        ("assay_jobs_ended_total", &[("state", "succeeded")], 1),
        ("assay_jobs_ended_total", &[("state", "failed")], 0),
        ("assay_shards_queued", &[], 0),
        ("assay_attempts_running", &[("kind", "primary")], 0),
        (
            "assay_attempts_total",
            &[("kind", "plan"), ("outcome", "committed")],
            1,
        ),
        (
            "assay_attempts_total",
            &[("kind", "primary"), ("outcome", "lost")],
            0,
        ),
        ("assay_attempts_revoked_total", &[], 0),
        ("assay_late_results_total", &[], 0),
        ("assay_workers", &[("state", "live")], 1),
        ("assay_tokens_total", &[("device_kind", "test")], 8),
        (
            "assay_claim_latency_seconds_count",
            &[("work", "planning")],
            1,
        ),
        (
            "assay_claim_latency_seconds_count",
            &[("work", "shards")],
            1,
        ),
    ] {
        assert_eq!(metrics.count(name, labels), count, "{name} {labels:?}");
    }
    let waited = metrics.value("assay_unclaimed_seconds", &[("work", "planning")]);
    assert!((0.0..60.0).contains(&waited), "{waited}");
    let computing = [("device_kind", "test"), ("doing", "computing")];
    let shards = metrics.count(
        "assay_attempts_total",
        &[("kind", "primary"), ("outcome", "committed")],
    );
    // Half a second for each.
    let seconds = metrics.value("assay_device_seconds_total", &computing);
    assert!((seconds - shards as f64 / 2.0).abs() < 1e-9, "{seconds}");
    let per_second = metrics.value("assay_tokens_per_second", &[("device_kind", "test")]);
    assert!((per_second - 8.0 / 300.0).abs() < 1e-9, "{per_second}");
    // This one holds no connection any more, but the pool keeps it.
    let idle = metrics.count("assay_database_connections", &[("state", "idle")]);
    let most = metrics.count("assay_database_connections_limit", &[]);
    assert!((1..=most).contains(&idle), "{idle} of {most}");
    service.finish().await;
}

#[tokio::test]
async fn requests_are_told_by_route_and_never_by_path() {
    let service = Service::start().await;
    let job = jobs(&service).await;
    let brew = Method::from_bytes(b"BREW").unwrap();
    for (method, path, status) in [
        (Method::GET, format!("/jobs/{}", job.id), 200),
        (
            Method::GET,
            "/jobs/00000000-0000-7000-8000-000000000000".to_owned(),
            404,
        ),
        (Method::GET, "/secret/path".to_owned(), 404),
        (Method::DELETE, "/another".to_owned(), 404),
        (brew, "/healthz".to_owned(), 405),
    ] {
        let answer = service.send(method, &path).await;
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
    let metrics = scrape(&service).await;
    for (method, route, status, count) in [
        ("POST", "/jobs", "2xx", 2),
        ("GET", "/jobs/{id}", "2xx", 1),
        ("GET", "/jobs/{id}", "4xx", 1),
        ("GET", "unmatched", "4xx", 1),
        ("DELETE", "unmatched", "4xx", 1),
        ("other", "/healthz", "4xx", 1),
    ] {
        let labels = [("method", method), ("route", route), ("status", status)];
        let found = metrics.count(&format!("{DURATIONS}_count"), &labels);
        assert_eq!(found, count, "{labels:?}");
        let sum = metrics.value(&format!("{DURATIONS}_sum"), &labels);
        assert!(sum > 0.0, "{labels:?}");
    }
    // The scrape itself has not been answered when it is written.
    assert_eq!(metrics.count("assay_http_requests_in_flight", &[]), 1);
    let routes: BTreeSet<&str> = metrics.0[DURATIONS]
        .samples
        .iter()
        .map(|sample| &*sample.labels["route"])
        .collect();
    let known = ["/healthz", "/jobs", "/jobs/{id}", "unmatched"];
    assert_eq!(routes, known.into(), "whatever is asked for");
    let again = scrape(&service).await;
    let scrapes = [("method", "GET"), ("route", "/metrics"), ("status", "2xx")];
    assert_eq!(again.count(&format!("{DURATIONS}_count"), &scrapes), 1);
    service.finish().await;
}

#[tokio::test]
async fn every_metric_is_in_the_manual() {
    let service = Service::start().await;
    jobs(&service).await;
    service.send(Method::GET, "/healthz").await;
    // The one of the jobs has no device.
    let device = DeviceStatus {
        name: "cpu:0".to_owned(),
        kind: "test".to_owned(),
    };
    let worker = NewWorker {
        id: Uuid::now_v7(),
        name: "idle",
        version: "test",
        devices: &[device],
    };
    let lease = Duration::from_mins(5);
    service
        .store
        .register_worker(&worker, lease, None)
        .await
        .unwrap();
    let metrics = scrape(&service).await;
    let told: BTreeSet<&str> = metrics.0.keys().map(String::as_str).collect();
    // The table has a row for each.
    let rows = MANUAL
        .lines()
        .filter_map(|line| line.strip_prefix("| `assay_"));
    let described: Vec<String> = rows
        .map(|row| format!("assay_{}", row.split(['`', '{']).next().unwrap()))
        .collect();
    let once: BTreeSet<&str> = described.iter().map(String::as_str).collect();
    assert_eq!(once, told);
    assert_eq!(described.len(), once.len(), "a row for each");
    for (name, metric) in &metrics.0 {
        assert_eq!(metric.kind == "counter", name.ends_with("_total"), "{name}");
        assert!(
            metric.help.len() > 20 && metric.help.ends_with('.'),
            "{name}"
        );
    }

    // Rules name samples, and labels that these have.
    let samples: BTreeSet<&str> = metrics
        .0
        .values()
        .flat_map(|metric| &metric.samples)
        .map(|sample| &*sample.name)
        .collect();
    let mut named = 0;
    for text in [MANUAL, RULES] {
        for found in text.split("assay_").skip(1) {
            let end = found.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
            let name = format!("assay_{}", &found[..end.unwrap_or(found.len())]);
            assert!(samples.contains(&*name) || told.contains(&*name), "{name}");
            named += 1;
        }
    }
    assert!(named > told.len(), "{named}: the rules name some too");
    service.finish().await;
}

#[tokio::test]
async fn open_metrics_are_for_those_who_ask() {
    let service = Service::start().await;
    let request = service.request(Method::GET, "/metrics").header(
        ACCEPT,
        "application/openmetrics-text; version=1.0.0, text/plain; q=0.5",
    );
    let answer = request.send().await.unwrap();
    assert_eq!(
        answer.headers()[CONTENT_TYPE],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let text = answer.text().await.unwrap();
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    assert!(text.contains("\n# TYPE assay_attempts counter\n"), "{text}");
    assert!(
        text.contains("\nassay_attempts_total{kind=\"plan\","),
        "{text}"
    );
    service.finish().await;
}
