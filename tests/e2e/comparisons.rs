//! Two jobs over the same text: every number of a comparison is what the documents and the tokens
//! of both say.

mod coverage;
mod refused;

use assay_api::{Comparison, DatasetComparison, JobId, JobResult, Unit, Verdict};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::moby_dick::{jsonl, paragraphs};
use crate::noise::add_noisy_model;
use crate::paired::{assert_difference, assert_extremes, clusters, spans, verdict};
use crate::reference::{expected, text};
use crate::service::Service;

const MODEL: &str = "llama_gqa";
const NOISY: &str = "noisy";
/// Of another tokenizer.
const OTHER: &str = "gpt2";
const GROUPED: &str = "grouped.jsonl";

/// Documents of three groups, two of them large enough for a standard error, and one without text.
fn grouped() -> String {
    let mut documents = paragraphs(24, 120);
    documents.insert(3, String::new());
    let lines = documents.iter().enumerate().map(|(index, text)| {
        let kind = ["even", "odd", "few"][if index % 9 == 8 { 2 } else { index % 2 }];
        json!({"text": text, "kind": kind}).to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Roots with two models that differ in noise, and data.
fn roots() -> Roots {
    let roots = Roots::new();
    add_noisy_model(&roots, MODEL, NOISY, 0.05);
    roots.add_model(OTHER);
    roots.add_data(GROUPED, grouped());
    roots.add_data("same.jsonl", grouped());
    roots.add_data("three.jsonl", jsonl(&paragraphs(3, 300)));
    roots.add_data("long.txt", text(&expected(MODEL), "long"));
    roots
}

async fn service() -> Service {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    service
}

fn job(model: &str, change: Value) -> Value {
    let mut job = json!({
        "model": model,
        "datasets": [{"path": GROUPED, "group_by": "kind"}],
        "method": {"window": 64},
    });
    let Value::Object(change) = change else {
        panic!("a change is an object")
    };
    job.as_object_mut().unwrap().extend(change);
    job
}

/// The same job of the model and of its noisy copy.
async fn pair(service: &Service, change: &Value) -> (JobId, JobId) {
    let baseline = service.client.done(&job(MODEL, change.clone())).await;
    let candidate = service.client.done(&job(NOISY, change.clone())).await;
    (baseline, candidate)
}

/// `fail` before `inconclusive` before `pass`.
fn worst_of(verdicts: &[Verdict]) -> Verdict {
    let order = [Verdict::Fail, Verdict::Inconclusive];
    let worst = order.into_iter().find(|verdict| verdicts.contains(verdict));
    worst.unwrap_or(Verdict::Pass)
}

fn pair_of((baseline, candidate): (JobId, JobId)) -> Value {
    json!({"baseline": baseline, "candidate": candidate})
}

#[tokio::test]
async fn differences_are_those_of_the_documents() {
    const LIMIT: usize = 4;
    const MAX_INCREASE: f64 = 0.01;
    let service = service().await;
    let change = json!({
        "datasets": [{"path": GROUPED, "group_by": "kind"}, "three.jsonl"],
        "method": [{"window": 64}, {"convention": "blocks", "window": 64, "tail": "score"}],
    });
    let jobs = pair(&service, &change).await;
    let mut request = pair_of(jobs);
    request["documents"] = json!(LIMIT);
    request["max_increase"] = json!(MAX_INCREASE);
    let comparison = service.client.compare(&request).await;

    assert_eq!((comparison.baseline, comparison.candidate), jobs);
    let rows = [
        (GROUPED, 0),
        (GROUPED, 1),
        ("three.jsonl", 0),
        ("three.jsonl", 1),
    ];
    assert_eq!(comparison.datasets.len(), rows.len());
    let mut verdicts = Vec::new();
    for ((name, method), found) in rows.into_iter().zip(&comparison.datasets) {
        let what = format!("{name} under method {method}");
        let job = service.client.job(jobs.1).await;
        assert_eq!(found.method, job.method.as_slice()[method], "{what}");
        assert_eq!((found.name.as_str(), &found.baseline_name), (name, &None));
        assert_eq!(found.unit, Unit::Token, "{what}");

        let rows = service.client.rows(jobs.1, name, method).await;
        let clusters = clusters(
            &service.client.rows(jobs.0, name, method).await,
            &rows,
            Unit::Token,
        );
        assert_difference(&found.difference, rows.len(), &clusters, &what);
        assert_extremes(found, &clusters, LIMIT);
        for change in found.worst.iter().chain(&found.best) {
            let row = &rows[usize::try_from(change.index).unwrap()];
            assert_eq!(change.group, row.group, "{what}");
        }
        assert_eq!(found.max_increase, Some(MAX_INCREASE), "{what}");
        let verdict = verdict(&found.difference, MAX_INCREASE);
        assert_eq!(found.verdict, Some(verdict), "{what}: {found:?}");
        assert!(found.reason.is_some(), "{what}");
        verdicts.push(verdict);

        let names: Vec<&str> = found
            .groups
            .iter()
            .map(|group| group.name.as_str())
            .collect();
        let expected: &[&str] = match name {
            GROUPED => &["even", "few", "odd"],
            _ => &[],
        };
        assert_eq!(names, expected, "{what}");
        for group in &found.groups {
            let members = rows.iter().zip(&clusters);
            let members = members.filter(|(row, _)| row.group.as_ref() == Some(&group.name));
            let members: Vec<_> = members.map(|(_, cluster)| *cluster).collect();
            let what = format!("{what}: {}", group.name);
            assert_difference(&group.difference, members.len(), &members, &what);
        }
    }
    // The noise moves each document; of three there is no interval.
    let first = &comparison.datasets[0].difference;
    assert!(
        first.worse > 0 && first.better > 0 && first.confidence_95.is_some(),
        "{first:?}"
    );
    assert_eq!(comparison.datasets[2].difference.standard_error, None);
    assert_eq!(comparison.verdict, Some(worst_of(&verdicts)));

    // Without a largest increase there is no verdict, and the numbers are the same.
    let mut plain = service.client.compare(&pair_of(jobs)).await;
    assert_eq!(plain.verdict, None);
    for (plain, found) in plain.datasets.iter_mut().zip(&comparison.datasets) {
        assert_eq!(
            (plain.verdict, &plain.reason, plain.max_increase),
            (None, &None, None)
        );
        assert_eq!(plain.difference, found.difference);
        assert_eq!(plain.worst[..LIMIT.min(plain.worst.len())], found.worst);
    }
    // What is left out is not there.
    request["datasets"] = json!(["three.jsonl"]);
    request["documents"] = json!(0);
    let some = service.client.compare(&request).await;
    let names: Vec<&str> = some.datasets.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["three.jsonl", "three.jsonl"]);
    assert!(
        some.datasets
            .iter()
            .all(|row| row.worst.is_empty() && row.best.is_empty())
    );
    service.finish().await;
}

#[tokio::test]
async fn one_document_is_compared_by_its_spans() {
    let service = service().await;
    let change = json!({
        "datasets": ["long.txt"],
        "method": [{"window": 64}, {"convention": "blocks", "window": 64}],
        "token_output": true,
    });
    let jobs = pair(&service, &change).await;
    let comparison = service.client.compare(&pair_of(jobs)).await;
    for (method, found) in comparison.datasets.iter().enumerate() {
        let baseline = service.client.tokens(jobs.0, "long.txt", 0, method).await;
        let candidate = service.client.tokens(jobs.1, "long.txt", 0, method).await;
        let spans = spans(&baseline, &candidate);
        assert_difference(&found.difference, 1, &spans, &format!("method {method}"));
        assert_eq!(found.difference.clusters, 50);
    }
    service.finish().await;
}

/// All but names.
fn numbers(comparison: &Comparison) -> Vec<DatasetComparison> {
    let rows = comparison.datasets.iter().cloned();
    rows.map(|row| DatasetComparison {
        name: String::new(),
        baseline_name: None,
        ..row
    })
    .collect()
}

#[tokio::test]
async fn rows_of_the_same_text_find_each_other() {
    let service = service().await;
    let methods = json!([{"window": 64}, {"convention": "blocks", "window": 64}]);
    let change = json!({"method": methods, "tags": {"branch": "main"}});
    let jobs = pair(&service, &change).await;
    let first = service.client.compare(&pair_of(jobs)).await;

    // Numbers that were taken from an earlier job are compared like those that were computed.
    let reused = pair(&service, &json!({"method": methods})).await;
    for id in [reused.0, reused.1] {
        let result: JobResult = service.client.read(&format!("/jobs/{id}/results")).await;
        assert!(
            result.datasets.iter().all(|row| row.reused_from.is_some()),
            "{result:?}"
        );
    }
    let again = service.client.compare(&pair_of(reused)).await;
    assert_eq!(again.datasets, first.datasets);

    // By its bytes under another name, by the method in another order; the baseline may have more.
    let change = json!({
        "datasets": [{"path": "same.jsonl", "group_by": "kind"}],
        "method": [methods[1], methods[0]],
    });
    let renamed = service.client.done(&job(NOISY, change)).await;
    let found = service.client.compare(&pair_of((jobs.0, renamed))).await;
    for row in &found.datasets {
        let names = (row.name.as_str(), row.baseline_name.as_deref());
        assert_eq!(names, ("same.jsonl", Some(GROUPED)));
    }
    let mut reversed = numbers(&first);
    reversed.reverse();
    assert_eq!(numbers(&found), reversed);
    let one = service
        .client
        .done(&job(NOISY, json!({"method": methods[1]})))
        .await;
    let found = service.client.compare(&pair_of((jobs.0, one))).await;
    assert_eq!(found.datasets, first.datasets[1..]);

    // The newest job with the tag that is older than the candidate: its own noisy predecessor.
    let request = json!({"baseline": {"tag": "branch:main"}, "candidate": one});
    let found = service.client.compare(&request).await;
    assert_eq!(found.baseline, jobs.1);
    assert_eq!(found.datasets[0].difference.nll_difference_exact, "0");
    let request = json!({"baseline": {"tag": "branch:main"}, "candidate": jobs.1});
    assert_eq!(service.client.compare(&request).await.baseline, jobs.0);
    service.finish().await;
}

#[tokio::test]
async fn other_tokens_are_compared_by_bytes() {
    const MAX_INCREASE: f64 = 0.01;
    let service = service().await;
    let baseline = service.client.done(&job(MODEL, json!({}))).await;
    let candidate = service.client.done(&job(OTHER, json!({}))).await;
    let mut request = pair_of((baseline, candidate));
    request["max_increase"] = json!(MAX_INCREASE);
    let comparison = service.client.compare(&request).await;
    let warning = comparison.warnings.join("\n");
    assert!(
        warning.contains("token") && warning.contains("byte"),
        "{warning:?}"
    );
    let found = &comparison.datasets[0];
    assert_eq!(found.unit, Unit::Byte);
    let rows = (
        service.client.documents(baseline, GROUPED).await,
        service.client.documents(candidate, GROUPED).await,
    );
    let clusters = clusters(&rows.0, &rows.1, Unit::Byte);
    assert_difference(&found.difference, rows.1.len(), &clusters, "by bytes");
    assert_extremes(found, &clusters, 10);

    // As many nats in all as it would be per token of the baseline.
    let tokens: u64 = rows.0.iter().map(|row| row.scored_tokens).sum();
    let largest = MAX_INCREASE * tokens as f64 / found.difference.units as f64;
    let ratio = found.max_increase.unwrap() / largest;
    assert!((ratio - 1.0).abs() < 1e-12, "{found:?}");
    assert_eq!(found.verdict, Some(verdict(&found.difference, largest)));
    service.finish().await;
}
