//! Jobs that measured something else are not compared, and the answer names what differs.

use assay_api::ErrorCode::{
    self, InvalidRequest, JobNotEnded, MalformedJson, NotComparable, NotFound,
};
use assay_api::JobId;
use reqwest::Method;
use serde_json::{Value, json};

use super::{GROUPED, MODEL, NOISY, OTHER, job, pair, pair_of, service};
use crate::client::{problem, refusal};
use crate::service::Service;

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

/// The status, the code and the fields of a refused comparison; its detail is not empty.
async fn refused(service: &Service, body: &Value) -> (u16, ErrorCode, Vec<String>) {
    let answer = service.client.post_comparison(body).await;
    let (status, code, fields, detail) = refusal(answer).await;
    assert!(!detail.is_empty(), "{body}");
    (status, code, fields)
}

/// Checks that two jobs are not comparable, for `field` alone and with `word` in its detail.
async fn differ(service: &Service, jobs: (JobId, JobId), field: &str, word: &str) {
    let body = pair_of(jobs);
    let problem = problem(service.client.post_comparison(&body).await).await;
    assert_eq!(
        (problem.status, problem.code),
        (409, NotComparable),
        "{problem:?}"
    );
    let fields: Vec<&str> = problem
        .errors
        .iter()
        .map(|error| error.field.as_str())
        .collect();
    assert_eq!(fields, [field], "{problem:?}");
    assert!(
        problem.errors[0].detail.contains(word),
        "{word}: {problem:?}"
    );
}

#[tokio::test]
async fn what_differs_is_named() {
    let service = service().await;
    let done = async |model: &str, change: Value| service.client.done(&job(model, change)).await;
    let baseline = done(MODEL, json!({})).await;
    let dataset = format!("datasets.{GROUPED}");
    let grouped = |option: &str, value: Value| {
        let mut dataset = json!({"path": GROUPED, "group_by": "kind"});
        dataset[option] = value;
        json!({"datasets": [dataset]})
    };
    for (change, field, word) in [
        (json!({"dtype": "bfloat16"}), "dtype", "bfloat16"),
        (json!({"method": {"window": 63}}), "method", "63"),
        (
            json!({"method": {"convention": "blocks", "window": 64}}),
            "method",
            "blocks",
        ),
        (
            grouped("limit_documents", json!(7)),
            &*dataset,
            "limit_documents",
        ),
        (
            grouped("limit_tokens", json!(100)),
            &*dataset,
            "limit_tokens",
        ),
        (grouped("field", json!("kind")), &*dataset, "field"),
        (
            grouped("sample", json!({"documents": 9})),
            &*dataset,
            "sample",
        ),
    ] {
        let candidate = done(NOISY, change).await;
        differ(&service, (baseline, candidate), field, word).await;
    }

    // How documents are divided into groups is no number of the whole.
    let plain = done(NOISY, json!({"datasets": [GROUPED]})).await;
    let found = service.client.compare(&pair_of((baseline, plain))).await;
    assert!(found.datasets[0].groups.is_empty());

    // A dataset that the baseline does not have, unless it is left out.
    let more = done(NOISY, json!({"datasets": [GROUPED, "three.jsonl"]})).await;
    differ(&service, (baseline, more), "datasets.three.jsonl", "").await;
    let mut request = pair_of((baseline, more));
    request["datasets"] = json!([GROUPED]);
    let found = service.client.compare(&request).await;
    assert_eq!(found.datasets.len(), 1);

    // All that differs at once, each method apart.
    let change = json!({
        "datasets": ["three.jsonl"],
        "dtype": "bfloat16",
        "method": [{"window": 9}, {"convention": "blocks", "window": 64}],
    });
    let candidate = done(NOISY, change).await;
    let (_, code, mut fields) = refused(&service, &pair_of((baseline, candidate))).await;
    fields.sort();
    assert_eq!(code, NotComparable);
    let expected = ["datasets.three.jsonl", "dtype", "method", "method"];
    assert_eq!(fields, expected);

    // The numbers of an earlier version of the computation.
    let mut ledger = service.ledger().await;
    let changed = sqlx::query(
        "update jobs set plan = jsonb_set(plan, '{numerics_version}', '1') where id = $1",
    );
    let changed = changed.bind(plain).execute(&mut ledger).await.unwrap();
    assert_eq!(changed.rows_affected(), 1);
    drop(ledger);
    differ(&service, (baseline, plain), "numerics_version", "1").await;

    // Other bytes under the same name.
    let text = json!({"text": "Call me Ishmael.", "kind": "few"}).to_string();
    service.roots.add_data(GROUPED, text);
    let candidate = done(NOISY, json!({})).await;
    differ(&service, (baseline, candidate), &dataset, "digest").await;
    service.finish().await;
}

/// By bytes only a document that is scored whole and alone can be compared.
#[tokio::test]
async fn other_tokens_in_other_blocks_are_not_compared() {
    let service = service().await;
    let method = json!({"method": {"convention": "blocks", "window": 64}});
    let baseline = service.client.done(&job(MODEL, method.clone())).await;
    let candidate = service.client.done(&job(OTHER, method)).await;
    let dataset = format!("datasets.{GROUPED}");
    differ(&service, (baseline, candidate), &dataset, "tokens differ").await;
    service.finish().await;
}

#[tokio::test]
async fn requests_at_fault_are_refused() {
    let service = service().await;
    let jobs = pair(&service, &json!({})).await;
    service.workers[0].stop().await;
    let queued = service.client.submit(&job(NOISY, json!({}))).await;
    let with = |change: Value| {
        let mut body = pair_of(jobs);
        let Value::Object(change) = change else {
            panic!("a change is an object")
        };
        body.as_object_mut().unwrap().extend(change);
        body
    };
    for (change, status, code, field) in [
        (json!({"candidate": queued}), 409, JobNotEnded, "candidate"),
        (json!({"baseline": queued}), 409, JobNotEnded, "baseline"),
        (json!({"baseline": jobs.1}), 422, InvalidRequest, "baseline"),
        (json!({"candidate": NOBODY}), 404, NotFound, "candidate"),
        (json!({"baseline": NOBODY}), 404, NotFound, "baseline"),
        (
            json!({"baseline": {"tag": "branch:none"}}),
            404,
            NotFound,
            "baseline",
        ),
        (json!({"baseline": "main"}), 422, InvalidRequest, "baseline"),
        (
            json!({"baseline": {"tag": "main"}}),
            422,
            InvalidRequest,
            "baseline.tag",
        ),
        (json!({"candidate": null}), 422, InvalidRequest, "candidate"),
        (
            json!({"datasets": ["none"]}),
            422,
            InvalidRequest,
            "datasets[0]",
        ),
        (json!({"documents": -1}), 422, InvalidRequest, "documents"),
        (json!({"documents": 1001}), 422, InvalidRequest, "documents"),
        (
            json!({"max_increase": -0.01}),
            422,
            InvalidRequest,
            "max_increase",
        ),
        (
            json!({"max_increase": 1e300}),
            422,
            InvalidRequest,
            "max_increase",
        ),
        (
            json!({"max_increase": "1 %"}),
            422,
            InvalidRequest,
            "max_increase",
        ),
        (json!({"maximum": 1}), 422, InvalidRequest, "maximum"),
    ] {
        let body = with(change);
        let found = refused(&service, &body).await;
        assert_eq!(found, (status, code, vec![field.to_owned()]), "{body}");
    }
    // What was never scored.
    let cancelled = service.client.cancel(queued).await;
    let dataset = format!("datasets.{GROUPED}");
    differ(&service, (jobs.0, cancelled), &dataset, "cancelled").await;
    // Numbers that JSON does not have.
    for number in ["NaN", "Infinity", "1e999"] {
        let body = with(json!({"max_increase": 7})).to_string();
        let body = body.replace(":7", &format!(":{number}"));
        let request = service.client.request(Method::POST, "/comparisons");
        let request = request
            .header("Content-Type", "application/json")
            .body(body);
        let (status, code, ..) = refusal(request.send().await.unwrap()).await;
        assert_eq!((status, code), (400, MalformedJson), "{number}");
    }
    service.finish().await;
}
