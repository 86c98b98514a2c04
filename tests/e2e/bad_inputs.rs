//! Bad inputs: each is refused by name, with its cause and what to do about it, and the service is
//! none the worse for it.

mod bodies;
mod checkpoints;
mod datasets;
mod requests;

use assay_api::{ErrorCode, Job, Readiness};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::client::refusal;
use crate::service::Service;

const MODEL: &str = "llama_gqa";

/// Roots with a good model and good data.
fn roots() -> Roots {
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data("a.txt", "text");
    roots.add_data("b.jsonl", "{\"text\": \"text\", \"kind\": \"x\"}\n");
    roots
}

/// A good request with some fields replaced.
fn with(change: Value) -> Value {
    let mut body = json!({"model": MODEL, "datasets": ["a.txt"]});
    let Value::Object(change) = change else {
        panic!("a change is an object")
    };
    body.as_object_mut().unwrap().extend(change);
    body
}

/// What is wrong with how a service refuses bad inputs; a test shows all of it at its end.
#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn require(&mut self, holds: bool, what: &str, context: &str) {
        if !holds {
            self.0.push(format!("{what}\n    {context}"));
        }
    }

    /// What the detail of a refusal must and must not say.
    fn check_detail(&mut self, service: &Service, detail: &str, parts: &[&str], context: &str) {
        for part in parts {
            let what = format!("{part:?} is not in");
            self.require(detail.contains(part), &what, context);
        }
        let roots = &service.roots;
        for root in [roots.models(), roots.data(), roots.state()] {
            let root = root.display().to_string();
            self.require(!detail.contains(&root), "a path of the host is in", context);
        }
    }

    /// Posts a job that is refused at once, for this field.
    async fn refused(
        &mut self,
        service: &Service,
        body: &Value,
        code: ErrorCode,
        field: &str,
        parts: &[&str],
    ) {
        let shown: String = body.to_string().chars().take(300).collect();
        let answer = service.client.post(body).await;
        if answer.status().is_success() {
            self.require(false, "taken, not refused", &shown);
            return;
        }
        let (status, found, fields, detail) = refusal(answer).await;
        let context = format!("{shown}\n    {found} {fields:?}: {detail}");
        let expected = (code.http_status(), code);
        let what = format!("not {expected:?} for {field:?}");
        let is_so = (status, found) == expected && fields == [field];
        self.require(is_so, &what, &context);
        self.check_detail(service, &detail, parts, &context);
    }

    /// Posts a job that is taken and fails, for this field.
    async fn fails(
        &mut self,
        service: &Service,
        body: &Value,
        code: ErrorCode,
        field: Option<&str>,
        parts: &[&str],
    ) {
        let shown: String = body.to_string().chars().take(300).collect();
        let answer = service.client.post(body).await;
        if !answer.status().is_success() {
            let text = answer.text().await.expect("a body");
            self.require(false, "refused at once", &format!("{shown}\n    {text}"));
            return;
        }
        let id = answer.json::<Job>().await.expect("a job").id;
        let job = service.client.ended(id).await;
        let Some(error) = job.error else {
            self.require(false, &format!("{:?}", job.state), &shown);
            return;
        };
        let context = format!("{shown}\n    {error:?}");
        let what = format!("not {code} for {field:?}");
        let is_so = error.code == code && error.field.as_deref() == field;
        self.require(is_so, &what, &context);
        self.check_detail(service, &error.detail, parts, &context);
        let attempts: i64 = sqlx::query_scalar("select count(*) from attempts where job_id = $1")
            .bind(id)
            .fetch_one(&mut service.ledger().await)
            .await
            .expect("the ledger answers");
        // Another try would end the same way: the planning is one, a shard behind it another.
        let expected = if error.shard.is_some() { 2 } else { 1 };
        let what = format!("{attempts} attempts, not {expected}");
        self.require(attempts == expected, &what, &context);
    }

    /// Shows them, if there are any.
    fn none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

/// Nothing of what was refused has become a job.
async fn finish_without_jobs(service: Service) {
    let jobs: Vec<Value> = service.client.all("/jobs?limit=10").await;
    assert_eq!(jobs, [] as [Value; 0]);
    finish_healthy(service).await;
}

/// The service works on as if nothing had been; `finish` looks for panics in the logs.
async fn finish_healthy(mut service: Service) {
    if service.workers.is_empty() {
        service.add_worker("cpu:0");
    }
    service.client.run(&with(json!({"reuse": false}))).await;
    let ready: Readiness = service.client.read("/readyz").await;
    assert_eq!(
        (ready.database, ready.workers),
        (true, 1),
        "the worker is the one started"
    );
    service.finish().await;
}
