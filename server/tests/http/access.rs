//! Every operation of the committed OpenAPI document, under every kind of key.
//!
//! What is asked is made from the document. An operation, a parameter or a body that this file has no
//! value for fails the test: whoever adds an operation says here how it is asked.

use std::collections::BTreeMap;

use assay_api::{CreatedKey, ErrorCode, Job, NewKey, Scope};
use assay_scoring::Convention;
use assay_store::ProjectId;
use reqwest::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::service::{Service, new_key, refusal};
use crate::worker;

const DOCUMENT: &str = include_str!("../../../openapi/openapi.json");

/// An operation of the document.
struct Operation {
    id: String,
    method: Method,
    /// With names in braces.
    path: String,
    /// None of those that take no key.
    scope: Option<Scope>,
}

impl Operation {
    /// Whether its path names a thing of a project.
    fn names_a_thing(&self) -> bool {
        self.path.contains('{')
    }
}

fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let security = operation["security"].as_array();
            let security = security.unwrap_or_else(|| panic!("{method} {path} says no scope"));
            let scope = security.first().map(|scheme| {
                let scope = scheme["bearer"][0].as_str().unwrap();
                scope.parse().unwrap()
            });
            let statuses = operation["responses"].as_object().unwrap();
            for status in ["401", "403", "429"] {
                let says = statuses.contains_key(status);
                assert_eq!(says, scope.is_some(), "{method} {path}: {status}");
            }
            found.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase().parse().unwrap(),
                path: path.clone(),
                scope,
            });
        }
    }
    // What removes a thing comes after what looks at it.
    found.sort_by_key(|operation| operation.method == Method::DELETE);
    found
}

/// What the project `default` has.
struct Things {
    baseline: Job,
    job: Job,
    upload: &'static str,
    key: CreatedKey,
}

impl Things {
    async fn make(service: &Service) -> Self {
        let mut body = json!({
            "model": "llama_gqa",
            "datasets": [{"name": "d", "documents": ["x", "y"]}],
            "token_output": true,
            "tags": {"of": "default"},
            // Of which nothing is known: no name ends so.
            "webhook": {"url": "https://receiver.invalid/"},
        });
        let baseline = run(service, &body).await;
        body["gate"] = json!({"baseline": baseline.id, "max_increase": 0.01});
        let job = run(service, &body).await;
        let upload = "up.jsonl";
        let sent = service.put(upload, "{\"text\": \"z\"}\n").await;
        assert_eq!(sent.status(), StatusCode::CREATED);
        let key = service.key(ProjectId::DEFAULT, Scope::Read).await;
        Self {
            baseline,
            job,
            upload,
            key,
        }
    }

    /// The path of an operation, its names and required parameters filled in.
    fn path(&self, operation: &Operation) -> String {
        let id = self.job.id.to_string();
        let path = if operation.path.starts_with("/jobs/") {
            // Its first delivery, where one is named.
            operation.path.replace("{id}", &id).replace("{number}", "1")
        } else if operation.path.starts_with("/keys/") {
            operation.path.replace("{id}", &self.key.key.id)
        } else {
            operation.path.replace("{name}", self.upload)
        };
        assert!(!path.contains('{'), "what is named in {path}?");
        let query = match &*operation.id {
            "list_documents" => "?dataset=d",
            "list_tokens" => "?dataset=d&document=0",
            "inspect_model" => "?path=llama_gqa",
            _ => "",
        };
        path + query
    }

    /// The body of an operation that takes one.
    fn fill(&self, operation: &Operation, request: RequestBuilder) -> RequestBuilder {
        let inline = json!({"documents": ["x", "y"]});
        let body = match &*operation.id {
            "create_job" => json!({"model": "llama_gqa", "datasets": [inline]}),
            "inspect_dataset" => json!({"dataset": inline}),
            "compare_plans" => json!({
                "job": {"model": "llama_gqa", "datasets": [inline]},
                "devices": [{"name": "a", "tokens_per_second": 100}],
            }),
            "compare_jobs" => json!({"baseline": self.baseline.id, "candidate": self.job.id}),
            "create_key" => json!({"name": "another", "scope": "read"}),
            "upload_dataset" => return request.body("{\"text\": \"w\"}\n"),
            "retry_delivery" => return request,
            id => {
                let takes_body = [Method::POST, Method::PUT, Method::PATCH];
                assert!(
                    !takes_body.contains(&operation.method),
                    "what is the body of {id}?"
                );
                return request;
            }
        };
        request.json(&body)
    }

    async fn ask(&self, service: &Service, operation: &Operation, key: Option<&str>) -> Response {
        let (method, path) = (operation.method.clone(), self.path(operation));
        let request = match key {
            Some(key) => service.request_as(key, method, &path),
            None => service.request(method, &path),
        };
        self.fill(operation, request).send().await.unwrap()
    }
}

async fn run(service: &Service, body: &Value) -> Job {
    let posted = service.post("/jobs", body).await;
    assert_eq!(posted.status(), StatusCode::CREATED);
    let rolling = Convention::Rolling { window: 4 };
    worker::run(&service.store, &[(&[3, 5], rolling)]).await;
    posted.json().await.unwrap()
}

async fn is_unauthenticated(answer: Response, what: &str) {
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{what}");
    assert_eq!(answer.headers()[WWW_AUTHENTICATE], "Bearer", "{what}");
    let (code, ..) = refusal(answer).await;
    assert_eq!(code, ErrorCode::Unauthenticated, "{what}");
}

/// Keys that open nothing.
async fn bad_keys(service: &Service) -> Vec<(&'static str, String)> {
    let ledger = service.within(ProjectId::DEFAULT);
    let expired = NewKey {
        expires_at: Some("2020-01-01T00:00:00Z".parse().unwrap()),
        ..new_key(Scope::Admin)
    };
    let expired = ledger.create_key(&expired).await.unwrap();
    let revoked = service.key(ProjectId::DEFAULT, Scope::Admin).await;
    ledger.revoke_key(&revoked.key.id).await.unwrap().unwrap();
    let good = service.key(ProjectId::DEFAULT, Scope::Admin).await;
    let other_secret = format!("assay_{}_{}", good.key.id, "0".repeat(64));
    let other_id = good.secret.replace(&good.key.id, "0123456789ab01234567");
    vec![
        ("expired", expired.secret),
        ("revoked", revoked.secret),
        ("another secret", other_secret),
        ("another id", other_id),
        ("no key", "secret".to_owned()),
        ("nothing", String::new()),
    ]
}

#[tokio::test]
async fn no_operation_is_open_that_does_not_say_so() {
    let service = Service::start().await;
    let things = Things::make(&service).await;
    let bad = bad_keys(&service).await;
    let open = ["/errors", "/healthz", "/openapi.json", "/readyz"];
    for operation in operations() {
        let what = format!("{} {}", operation.method, operation.path);
        if operation.scope.is_none() {
            assert!(open.contains(&&*operation.path), "{what}");
            let answer = things.ask(&service, &operation, None).await;
            assert_eq!(answer.status(), StatusCode::OK, "{what}");
            continue;
        }
        assert!(!open.contains(&&*operation.path), "{what}");
        let answer = things.ask(&service, &operation, None).await;
        is_unauthenticated(answer, &what).await;
        for (kind, key) in &bad {
            let answer = things.ask(&service, &operation, Some(key)).await;
            is_unauthenticated(answer, &format!("{what}, {kind}")).await;
        }
    }
    let documentation = service.send(Method::GET, "/docs/").await;
    assert_eq!(documentation.status(), StatusCode::OK);
    assert_eq!(
        service.send(Method::GET, "/nowhere").await.status(),
        StatusCode::NOT_FOUND
    );
    service.finish().await;
}

#[tokio::test]
async fn a_key_does_what_its_scope_says_and_no_more() {
    let service = Service::start().await;
    let things = Things::make(&service).await;
    let mut keys = BTreeMap::new();
    for scope in Scope::ALL {
        keys.insert(scope, service.key(ProjectId::DEFAULT, scope).await.secret);
    }
    for operation in operations() {
        let Some(needed) = operation.scope else {
            continue;
        };
        for (scope, key) in &keys {
            let what = format!("{} {} with {scope}", operation.method, operation.path);
            let answer = things.ask(&service, &operation, Some(key)).await;
            let status = answer.status();
            if *scope < needed {
                let (code, _, detail) = refusal(answer).await;
                assert_eq!(code, ErrorCode::Forbidden, "{what}");
                assert!(detail.contains(needed.as_str()), "{detail}");
                continue;
            }
            // What was done with another scope a moment ago is not there to be done again.
            let again = *scope > needed && operation.method == Method::DELETE;
            let ended = operation.id == "cancel_job" && status == StatusCode::CONFLICT;
            assert!(
                status.is_success() || ended || again && status == StatusCode::NOT_FOUND,
                "{what}: {status} {}",
                answer.text().await.unwrap()
            );
        }
    }
    service.finish().await;
}

#[tokio::test]
async fn what_belongs_to_another_project_is_not_there() {
    let service = Service::start().await;
    let things = Things::make(&service).await;
    let other = service.project("other").await;
    let key = service.key(other, Scope::Admin).await.secret;
    for operation in operations() {
        let what = format!("{} {}", operation.method, operation.path);
        let answer = things.ask(&service, &operation, Some(&key)).await;
        let status = answer.status();
        if operation.id == "upload_dataset" {
            // A name of its own, of which the other's of the same name knows nothing.
            assert_eq!(status, StatusCode::CREATED, "{what}");
            let own = service.within(other).delete_upload(things.upload).await;
            assert!(own.unwrap().is_some());
        } else if operation.names_a_thing() || operation.id == "compare_jobs" {
            let (code, _, detail) = refusal(answer).await;
            assert_eq!(code, ErrorCode::NotFound, "{what}: {detail}");
            assert!(detail.contains("there is no"), "{what}: {detail}");
        } else {
            assert!(status.is_success(), "{what}: {status}");
            let of_all = ["list_workers", "metrics"].contains(&&*operation.id);
            let is_text = answer.headers()[CONTENT_TYPE] != "application/json";
            let text = answer.text().await.unwrap();
            if of_all || is_text {
                continue;
            }
            for secret in [
                &*things.job.id.to_string(),
                &*things.baseline.id.to_string(),
                things.upload,
                &things.key.key.id,
            ] {
                assert!(!text.contains(secret), "{what}: {text}");
            }
        }
    }
    // The same of what the body of a request names.
    let job = |datasets: Value, gate: Value| json!({"model": "llama_gqa", "datasets": datasets, "gate": gate});
    let inline = json!([{"documents": ["x"]}]);
    let gate = |baseline: Value| json!({"baseline": baseline, "max_increase": 0.01});
    for (path, body, field) in [
        (
            "/jobs",
            job(json!([{"upload": things.upload}]), Value::Null),
            "datasets[0].upload",
        ),
        (
            "/datasets/inspect",
            json!({"dataset": {"upload": things.upload}}),
            "dataset.upload",
        ),
        (
            "/jobs",
            job(inline.clone(), gate(json!(things.job.id))),
            "gate.baseline",
        ),
        (
            "/jobs",
            job(inline, gate(json!({"tag": "of:default"}))),
            "gate.baseline",
        ),
        (
            "/comparisons",
            json!({"baseline": {"tag": "of:default"}, "candidate": things.job.id}),
            "baseline",
        ),
    ] {
        let request = service.request_as(&key, Method::POST, path);
        let answer = request.json(&body).send().await.unwrap();
        let (_, fields, detail) = refusal(answer).await;
        assert_eq!(fields, [field], "{body}: {detail}");
    }
    // All of it is still there.
    let own = service.within(ProjectId::DEFAULT);
    assert!(own.job(things.job.id).await.unwrap().is_some());
    assert!(own.upload(things.upload).await.unwrap().is_some());
    let keys = own.keys(None, 10).await.unwrap();
    assert!(keys.iter().all(|key| key.revoked_at.is_none()));
    drop(own);
    service.finish().await;
}
