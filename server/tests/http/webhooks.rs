//! The end of a job is told to its webhook, whatever that answers, and to nobody else.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use assay_api::{Delivery, DeliveryState, ErrorCode, Job, JobId, Page};
use assay_server::WebhookSettings;
use assay_testkit::{LIMIT, Receiver, Reply, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::service::{Service, refusal};

const SECRET: &str = "whsec_c2VjcmV0IGJ5dGVzIG9mIGEgdGVzdCwgMzIgb2Y=";
const MANUAL: &str = include_str!("../../../docs/webhooks.md");

/// A server that calls these, and tries again soon.
async fn service(allowed: &[&str], timeout: Duration) -> Service {
    let allowed = allowed.iter().map(|text| text.parse().unwrap());
    Service::start_telling(WebhookSettings {
        webhook_allow: allowed.collect(),
        webhook_timeout: timeout,
        webhook_retry: Duration::from_millis(10),
    })
    .await
}

async fn on_loopback() -> Service {
    service(&["127.0.0.0/8"], Duration::from_secs(15)).await
}

fn body(webhook: &Value) -> Value {
    json!({"model": "llama_gqa", "datasets": [{"documents": ["x"]}], "webhook": webhook})
}

impl Service {
    /// Posts a job with a webhook, and cancels it.
    async fn ended(&self, webhook: &Value) -> Job {
        let answer = self.post("/jobs", &body(webhook)).await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        let job: Job = answer.json().await.unwrap();
        let cancelled = self
            .send(Method::DELETE, &format!("/jobs/{}", job.id))
            .await;
        assert_eq!(cancelled.status(), StatusCode::OK);
        job
    }

    async fn delivery(&self, job: JobId) -> Delivery {
        let page: Page<Delivery> = self.get(&format!("/jobs/{job}/deliveries")).await;
        assert_eq!((page.items.len(), page.next), (1, None));
        page.items.into_iter().next().unwrap()
    }

    /// Waits until so many attempts at the delivery have ended.
    async fn tried(&self, job: JobId, attempts: usize) -> Delivery {
        eventually("attempts of the delivery", LIMIT, async || {
            let delivery = self.delivery(job).await;
            let ended = delivery.attempts.iter().filter(|a| a.finished_at.is_some());
            (ended.count() >= attempts).then_some(delivery)
        })
        .await
    }

    async fn becomes(&self, job: JobId, state: DeliveryState) -> Delivery {
        eventually("the end of the delivery", LIMIT, async || {
            Some(self.delivery(job).await).filter(|delivery| delivery.state == state)
        })
        .await
    }
}

#[tokio::test]
async fn a_receiver_that_fails_gets_it_again_and_can_verify_it() {
    let service = on_loopback().await;
    let receiver = Receiver::start([500, 503, 429].map(Reply::Status)).await;
    let webhook = json!({"url": receiver.url(), "secret": SECRET});
    let job = service.ended(&webhook).await;
    let delivery = service.becomes(job.id, DeliveryState::Delivered).await;
    let requests = receiver.received();
    assert_eq!(requests.len(), 4);

    let statuses: Vec<_> = delivery.attempts.iter().map(|a| a.status).collect();
    assert_eq!(statuses, [Some(500), Some(503), Some(429), Some(204)]);
    let first = delivery.attempts[0].error.as_deref();
    assert_eq!(
        first,
        Some("the receiver answered 500 Internal Server Error")
    );
    assert_eq!(delivery.attempts[3].error, None);
    assert_eq!(delivery.kind, "job.cancelled");

    let now: Value = service.get(&format!("/jobs/{}", job.id)).await;
    for request in &requests {
        assert_eq!(request.header("webhook-id"), delivery.webhook_id);
        assert_eq!(request.header("content-type"), "application/json");
        let message = request.json();
        assert_eq!(message["type"], "job.cancelled");
        assert_eq!(message["timestamp"], now["finished_at"]);
        assert_eq!(message["data"], now, "the job as GET has it");
    }
    assert!(!now.to_string().contains("whsec_"), "{now}");
    // Sent again when it is asked for, as the same message.
    let path = format!("/jobs/{}/deliveries/1/retry", job.id);
    let asked = service.send(Method::POST, &path).await;
    assert_eq!(asked.status(), StatusCode::OK);
    let again = &receiver.gets(5).await[4];
    assert_eq!(again.header("webhook-id"), delivery.webhook_id);
    assert_eq!(again.body, requests[0].body);
    for (headers, body, genuine) in [
        (again, &again.body[..], true),
        (again, &b"{\"type\":\"job.succeeded\"}"[..], false),
    ] {
        let verified = verified_in_python(SECRET, headers.headers.iter(), body);
        assert!(verified.is_none_or(|verified| verified == genuine));
    }
    service.finish().await;
}

/// What the lines in the manual say of a delivery. None where there is no Python.
fn verified_in_python<'a>(
    secret: &str,
    headers: impl Iterator<
        Item = (
            &'a reqwest::header::HeaderName,
            &'a reqwest::header::HeaderValue,
        ),
    >,
    body: &[u8],
) -> Option<bool> {
    let code = MANUAL.split("```python\n").nth(1).unwrap();
    let code = code.split("```").next().unwrap();
    let headers: serde_json::Map<String, Value> = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()))
        .collect();
    let given = json!([secret, headers, String::from_utf8(body.to_vec()).unwrap()]);
    let script = format!(
        "{code}\nimport json, sys\nsecret, headers, body = json.loads(sys.stdin.read())\n\
         try:\n    verify(secret, headers, body.encode())\n\
         except ValueError as error:\n    print(error)\n\
         else:\n    print('genuine')\n"
    );
    let child = Command::new("python3")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("not verified: there is no python3");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        ["genuine\n", "not signed with this secret\n"].contains(&&*said),
        "{said}"
    );
    Some(said == "genuine\n")
}

#[tokio::test]
async fn a_secret_is_made_and_shown_once() {
    let service = on_loopback().await;
    let receiver = Receiver::start([]).await;
    let body = body(&json!({"url": receiver.url()}));
    let post = async || {
        let request = service.request(Method::POST, "/jobs").json(&body);
        let answer = request.header("Idempotency-Key", "k").send().await.unwrap();
        let status = answer.status();
        (status, answer.json::<Job>().await.unwrap())
    };
    let (status, job) = post().await;
    assert_eq!(status, StatusCode::CREATED);
    let secret = job.webhook.unwrap().secret.expect("it is shown");
    let (status, again) = post().await;
    assert_eq!((status, again.id), (StatusCode::OK, job.id));
    assert_eq!(again.webhook.unwrap().secret, None);
    service
        .send(Method::DELETE, &format!("/jobs/{}", job.id))
        .await;
    let request = receiver.gets(1).await.remove(0);
    let verified = verified_in_python(secret.expose(), request.headers.iter(), &request.body);
    assert!(verified.is_none_or(|verified| verified));

    // One that was given is not shown, and another one is another request.
    let given = json!({"url": receiver.url(), "secret": SECRET});
    let job = service.ended(&given).await;
    assert_eq!(job.webhook.unwrap().secret, None);
    let mut other = body.clone();
    other["webhook"]["secret"] = SECRET.into();
    let request = service.request(Method::POST, "/jobs").json(&other);
    let answer = request.header("Idempotency-Key", "k").send().await.unwrap();
    assert_eq!(refusal(answer).await.0, ErrorCode::IdempotencyConflict);
    service.finish().await;
}

#[tokio::test]
async fn what_is_not_public_is_refused_when_posted() {
    let service = Service::start().await;
    for (webhook, field, why) in [
        (
            json!({"url": "http://127.0.0.1/x"}),
            "webhook.url",
            "--webhook-allow",
        ),
        (
            json!({"url": "http://2130706433/x"}),
            "webhook.url",
            "127.0.0.1",
        ),
        (
            json!({"url": "http://[::ffff:10.0.0.1]/"}),
            "webhook.url",
            "--webhook-allow",
        ),
        (
            json!({"url": "http://169.254.169.254/latest"}),
            "webhook.url",
            "--webhook-allow",
        ),
        (
            json!({"url": "gopher://a.example/"}),
            "webhook.url",
            "https",
        ),
        (
            json!({"url": "https://u:p@a.example/"}),
            "webhook.url",
            "password",
        ),
        (
            json!({"url": "https://a.example/", "secret": "short"}),
            "webhook.secret",
            "openssl",
        ),
        (
            json!({"url": "https://a.example/", "retries": 3}),
            "webhook.retries",
            "unknown field",
        ),
        (json!({}), "webhook.url", "missing"),
    ] {
        let answer = service.post("/jobs", &body(&webhook)).await;
        let (code, fields, detail) = refusal(answer).await;
        assert_eq!(code, ErrorCode::InvalidRequest, "{webhook}");
        assert_eq!(fields, [field], "{webhook}: {detail}");
        assert!(detail.contains(why), "{webhook}: {detail}");
        assert!(!detail.contains("short"), "{detail}");
    }
    service.finish().await;
}

#[tokio::test]
async fn a_name_is_refused_by_what_it_stands_for_when_it_is_called() {
    let service = Service::start().await;
    let receiver = Receiver::start([]).await;
    let url = format!("http://localhost:{}/", receiver.port);
    let job = service.ended(&json!({"url": url, "secret": SECRET})).await;
    let delivery = service.tried(job.id, 1).await;
    assert_eq!(delivery.state, DeliveryState::Pending);
    let attempt = &delivery.attempts[0];
    assert_eq!(attempt.status, None);
    let error = attempt.error.as_deref().unwrap();
    assert!(
        error.contains("localhost stands for ") && error.contains("not public"),
        "{error}"
    );
    assert_eq!(receiver.received().len(), 0);
    let metrics = service
        .send(Method::GET, "/metrics")
        .await
        .text()
        .await
        .unwrap();
    assert!(
        metrics.contains("assay_webhook_deliveries{state=\"pending\"} 1.0"),
        "{metrics}"
    );
    service.finish().await;

    // The same name, allowed.
    let service = self::service(&["localhost"], Duration::from_secs(15)).await;
    let job = service.ended(&json!({"url": url, "secret": SECRET})).await;
    service.becomes(job.id, DeliveryState::Delivered).await;
    service.finish().await;
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let service = service(&["localhost"], Duration::from_secs(15)).await;
    let inner = Receiver::start([]).await;
    let outer = Receiver::start(vec![Reply::Redirect(inner.url()); 2]).await;
    let url = format!("http://localhost:{}/", outer.port);
    let job = service.ended(&json!({"url": url, "secret": SECRET})).await;
    let delivery = service.becomes(job.id, DeliveryState::Delivered).await;
    assert_eq!(delivery.attempts[0].status, Some(302));
    let error = delivery.attempts[0].error.as_deref().unwrap();
    assert!(error.contains("not followed"), "{error}");
    assert_eq!(inner.received().len(), 0);
    service.finish().await;
}

#[tokio::test]
async fn one_that_never_answers_holds_up_nobody_else() {
    let service = service(&["127.0.0.0/8"], Duration::from_secs(2)).await;
    let silent = Receiver::start(vec![Reply::Never; 4]).await;
    let good = Receiver::start([]).await;
    let gone = Receiver::start([Reply::Status(410)]).await;
    let mut slow = Vec::new();
    for _ in 0..2 {
        let webhook = json!({"url": silent.url(), "secret": SECRET});
        slow.push(service.ended(&webhook).await.id);
    }
    silent.gets(1).await;
    let webhook = json!({"url": good.url(), "secret": SECRET});
    let fast = service.ended(&webhook).await.id;
    let fast = service.becomes(fast, DeliveryState::Delivered).await;
    let first = service.tried(slow[0], 1).await;
    let error = first.attempts[0].error.as_deref();
    assert_eq!(error, Some("the receiver did not answer in time"));
    assert!(fast.attempts[0].finished_at < first.attempts[0].finished_at);

    let webhook = json!({"url": gone.url(), "secret": SECRET});
    let gone = service.ended(&webhook).await.id;
    let failed = service.becomes(gone, DeliveryState::Failed).await;
    assert_eq!(failed.attempts.len(), 1, "it wants no more");
    service.finish().await;
}

#[tokio::test]
async fn two_servers_send_each_once() {
    let mut service = on_loopback().await;
    service.start_another().await;
    let receivers = [Receiver::start([]).await, Receiver::start([]).await];
    let mut jobs = BTreeSet::new();
    for index in 0..12 {
        let webhook = json!({"url": receivers[index % 2].url(), "secret": SECRET});
        jobs.insert(service.ended(&webhook).await.id.to_string());
    }
    for job in &jobs {
        let job = job.parse().unwrap();
        service.becomes(job, DeliveryState::Delivered).await;
    }
    let all = receivers.iter().flat_map(Receiver::received);
    let told: Vec<String> = all
        .map(|request| request.json()["data"]["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(told.len(), jobs.len(), "none twice");
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), jobs);
    service.finish().await;
}

#[tokio::test]
async fn deliveries_are_of_jobs_that_there_are() {
    let service = Service::start().await;
    let none = "/jobs/00000000-0000-7000-8000-000000000000/deliveries";
    for (method, path) in [
        (Method::GET, none.to_owned()),
        (Method::GET, "/jobs/x/deliveries".to_owned()),
        (Method::POST, format!("{none}/1/retry")),
        (Method::POST, "/jobs/x/deliveries/1/retry".to_owned()),
        (Method::POST, format!("{none}/x/retry")),
    ] {
        let answer = service.send(method, &path).await;
        assert_eq!(refusal(answer).await.0, ErrorCode::NotFound, "{path}");
    }
    let body = json!({"model": "llama_gqa", "datasets": [{"documents": ["x"]}]});
    let job: Job = service.post("/jobs", &body).await.json().await.unwrap();
    let page: Page<Delivery> = service.get(&format!("/jobs/{}/deliveries", job.id)).await;
    assert_eq!(page.items, []);
    service.finish().await;
}
