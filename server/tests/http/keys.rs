//! When a key is needed, and what becomes of keys.

use assay_api::{AuditEntry, CreatedKey, ErrorCode, Job, Key, Page, Scope};
use assay_server::{Config, run};
use assay_store::{ProjectChanges, ProjectId};
use assay_testkit::{LIMIT, Roots, TestDatabase};
use clap::Parser;
use reqwest::header::{CACHE_CONTROL, HOST, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::TcpListener;

use crate::service::{ADMIN_KEY, Service, refusal};

async fn get_as<T: DeserializeOwned>(service: &Service, key: &str, path: &str) -> T {
    let request = service.request_as(key, Method::GET, path);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    answer.json().await.unwrap()
}

#[tokio::test]
async fn an_open_service_answers_its_own_machine_alone() {
    let service = Service::start().await;
    let ask = async |host: &str| {
        let request = service.request(Method::GET, "/jobs").header(HOST, host);
        request.send().await.unwrap()
    };
    for host in ["localhost:8080", "127.0.0.1", "[::1]:1"] {
        assert_eq!(ask(host).await.status(), StatusCode::OK, "{host}");
    }
    for host in ["evil.example", "evil.example:80", "10.0.0.1"] {
        let (code, _, detail) = refusal(ask(host).await).await;
        assert_eq!(code, ErrorCode::Forbidden, "{host}");
        assert!(detail.contains("keys create"), "{detail}");
    }
    // The first key closes it, and opens it to other names.
    let key = service.key(ProjectId::DEFAULT, Scope::Read).await.secret;
    let (code, ..) = refusal(ask("localhost").await).await;
    assert_eq!(code, ErrorCode::Unauthenticated);
    let request = service.request_as(&key, Method::GET, "/jobs");
    let named = request.header(HOST, "assay.example").send().await.unwrap();
    assert_eq!(named.status(), StatusCode::OK);
    // A key that is of no use any longer does not open it again.
    let ledger = service.within(ProjectId::DEFAULT);
    for key in ledger.keys(None, 10).await.unwrap() {
        ledger.revoke_key(&key.id).await.unwrap();
    }
    drop(ledger);
    let (code, ..) = refusal(ask("localhost").await).await;
    assert_eq!(code, ErrorCode::Unauthenticated);
    service.finish().await;
}

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    config: Config,
}

#[tokio::test]
async fn a_service_that_others_reach_does_not_start_without_a_key() {
    let (database, roots) = (TestDatabase::fresh().await, Roots::new());
    let [models, data, state] =
        [roots.models(), roots.data(), roots.state()].map(|dir| dir.display().to_string());
    let arguments = [
        "serve",
        "--database-url",
        database.url(),
        "--model-root",
        &models,
        "--data-root",
        &data,
        "--state-dir",
        &state,
    ];
    let Arguments { config } = Arguments::parse_from(arguments);
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = run(config, listener, std::future::pending());
    let refused = tokio::time::timeout(LIMIT, refused).await.unwrap();
    let text = format!("{:#}", refused.unwrap_err());
    assert!(text.contains("assay-server keys create"), "{text}");
    database.finish().await;

    let service = Service::start_for_others().await;
    let (code, ..) = refusal(service.send(Method::GET, "/jobs").await).await;
    assert_eq!(code, ErrorCode::Unauthenticated);
    let jobs: Page<Job> = get_as(&service, ADMIN_KEY, "/jobs").await;
    assert!(jobs.items.is_empty());
    service.finish().await;
}

#[tokio::test]
async fn keys_are_made_listed_and_revoked_over_http() {
    let service = Service::start().await;
    let admin = service.key(ProjectId::DEFAULT, Scope::Admin).await.secret;
    let make = async |body: serde_json::Value| {
        let request = service.request_as(&admin, Method::POST, "/keys");
        request.json(&body).send().await.unwrap()
    };
    let answer = make(json!({"name": "ci", "scope": "submit"})).await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    assert_eq!(answer.headers()[CACHE_CONTROL], "no-store");
    let created: CreatedKey = answer.json().await.unwrap();
    for (body, field) in [
        (json!({"name": "", "scope": "read"}), "name"),
        (json!({"name": "x".repeat(201), "scope": "read"}), "name"),
        (json!({"name": "x", "scope": "all"}), "scope"),
        (
            json!({"name": "x", "scope": "read", "expires_at": "2020-01-01T00:00:00Z"}),
            "expires_at",
        ),
        (
            json!({"name": "x", "scope": "read", "project": "p"}),
            "project",
        ),
    ] {
        let (code, fields, _) = refusal(make(body).await).await;
        assert_eq!((code, &*fields[0]), (ErrorCode::InvalidRequest, field));
    }

    let posted = service.request_as(&created.secret, Method::POST, "/jobs");
    let body = json!({"model": "llama_gqa", "datasets": [{"documents": ["x"]}]});
    let posted = posted.json(&body).header("x-request-id", "of-the-job");
    let job: Job = posted.send().await.unwrap().json().await.unwrap();
    let page: Page<Key> = get_as(&service, &admin, "/keys?limit=1").await;
    assert_eq!(page.items[0].id, created.key.id, "the newest first");
    assert!(page.items[0].last_used_at.is_some());
    let next = format!("/keys?limit=1&cursor={}", page.next.unwrap());
    let rest: Page<Key> = get_as(&service, &admin, &next).await;
    assert_eq!((rest.items.len(), rest.next), (1, None));

    let path = format!("/keys/{}", created.key.id);
    for _ in 0..2 {
        let revoked = service.request_as(&admin, Method::DELETE, &path);
        let revoked: Key = revoked.send().await.unwrap().json().await.unwrap();
        assert!(revoked.revoked_at.is_some());
    }
    let answer = service.request_as(&created.secret, Method::GET, "/jobs");
    let (code, ..) = refusal(answer.send().await.unwrap()).await;
    assert_eq!(code, ErrorCode::Unauthenticated);

    let log: Page<AuditEntry> = get_as(&service, &admin, "/audit").await;
    let told: Vec<_> = log
        .items
        .iter()
        .map(|entry| (&*entry.action, &*entry.subject, entry.status))
        .collect();
    let (key, id) = (&*created.key.id, job.id.to_string());
    assert_eq!(
        told[..3],
        [
            ("revoke_key", key, Some(200)),
            ("create_job", &*id, Some(201)),
            ("create_key", key, Some(201)),
        ]
    );
    assert_eq!(log.items[1].key.as_deref(), Some(key));
    assert_eq!(log.items[1].request_id.as_deref(), Some("of-the-job"));
    assert_eq!(log.items.len(), 4, "that of the command line too");
    assert_eq!((log.items[3].status, &log.items[3].key), (None, &None));
    let cursor = log.items[2].number;
    let rest: Page<AuditEntry> = get_as(&service, &admin, &format!("/audit?cursor={cursor}")).await;
    assert_eq!(rest.items, log.items[3..]);
    service.finish().await;
}

#[tokio::test]
async fn quotas_and_rates_are_refused_with_what_frees_them() {
    let service = Service::with_rate_limit(1).await;
    let key = service.key(ProjectId::DEFAULT, Scope::Submit).await.secret;
    let changes = ProjectChanges {
        max_unfinished_jobs: Some(Some(1)),
        ..ProjectChanges::default()
    };
    service
        .store
        .set_project("default", &changes)
        .await
        .unwrap();
    let body = json!({"model": "llama_gqa", "datasets": [{"documents": ["x"]}]});
    let post = || service.request_as(&key, Method::POST, "/jobs").json(&body);
    let first = post().header("Idempotency-Key", "one");
    assert_eq!(first.send().await.unwrap().status(), StatusCode::CREATED);
    let answer = post().send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    let (code, _, detail) = refusal(answer).await;
    assert_eq!(code, ErrorCode::QuotaExceeded);
    assert!(detail.contains("has 1 jobs"), "{detail}");
    // The same request again is answered as before.
    let again = post()
        .header("Idempotency-Key", "one")
        .send()
        .await
        .unwrap();
    assert_eq!(again.status(), StatusCode::OK);

    // Sooner or later they come faster than one a second.
    let too_many = loop {
        let request = service.request_as(&key, Method::GET, "/jobs");
        let answer = request.send().await.unwrap();
        if answer.status() != StatusCode::OK {
            break answer;
        }
    };
    assert_eq!(too_many.headers()[RETRY_AFTER], "1");
    let (code, ..) = refusal(too_many).await;
    assert_eq!(code, ErrorCode::TooManyRequests);
    // Another key has a count of its own.
    let other = service.key(ProjectId::DEFAULT, Scope::Read).await.secret;
    let _: Page<Job> = get_as(&service, &other, "/jobs").await;
    service.finish().await;
}

#[tokio::test]
async fn browsers_are_told_to_run_nothing_of_others() {
    let service = Service::start().await;
    for path in ["/healthz", "/jobs", "/docs/", "/nowhere"] {
        let answer = service.send(Method::GET, path).await;
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "no-referrer", "{path}");
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'self'"), "{path}: {policy}");
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("script-src"), "{path}: {policy}");
    }
    service.finish().await;
}
