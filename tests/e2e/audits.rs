//! Shards that are computed twice: a worker that computes wrong numbers is found.

use assay_api::ErrorCode::AuditDisagrees;
use assay_api::{AttemptKind, AttemptOutcome, AuditState, DocumentRow, JobId, WorkerState};
use serde_json::{Value, json};

use crate::ledger::counted_once;
use crate::long_job::{job, roots, sums};
use crate::service::Service;

/// Part of the long job, all of it twice.
fn audited_job() -> Value {
    let mut job = part_of_job();
    job["audit"] = json!(1);
    job
}

fn part_of_job() -> Value {
    let mut job = job();
    job["datasets"] = json!([{"path": job["datasets"][0], "limit_tokens": 20_000}]);
    job
}

/// A service with a worker on core 0, and what it computed without an audit.
async fn scene() -> (Service, Vec<DocumentRow>) {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let id = service.client.submit(&part_of_job()).await;
    let result = service.client.succeeded(id).await;
    assert!(result.audited.abs() < f64::EPSILON);
    let undisturbed = sums(&service, id).await;
    (service, undisturbed)
}

async fn add_wrong_worker(service: &mut Service) {
    service.add_worker_with("cpu:1", &["--fault", "off-by-one"]);
    service.row_of(service.workers.len() - 1).await;
}

/// Checks that each shard was audited by another worker than the counted one, and agreed.
async fn all_agreed(service: &Service, id: JobId) {
    for shard in service.client.shards(id).await {
        assert_eq!(shard.audit, Some(AuditState::Agreed), "{shard:?}");
        let committed = |audit: bool| {
            let attempts = shard.attempts.iter();
            let of_kind = attempts.filter(move |a| (a.kind == AttemptKind::Audit) == audit);
            of_kind.filter(|a| a.outcome == Some(AttemptOutcome::Committed))
        };
        let counted: Vec<_> = committed(false).collect();
        assert_eq!(counted.len(), 1, "{shard:?}");
        let mut audits = committed(true);
        assert!(
            audits.any(|audit| audit.worker != counted[0].worker),
            "{shard:?}"
        );
    }
}

#[tokio::test]
async fn two_workers_that_are_right_agree() {
    let (mut service, undisturbed) = scene().await;
    service.add_worker("cpu:1");
    service.row_of(1).await;
    let id = service.client.submit(&audited_job()).await;
    let result = service.client.succeeded(id).await;
    assert!(
        (result.audited - 1.0).abs() < f64::EPSILON,
        "{}",
        result.audited
    );
    assert_eq!(sums(&service, id).await, undisturbed);
    counted_once(&mut service.ledger().await, id).await;
    all_agreed(&service, id).await;
    let performance = &result.performance;
    assert!(performance.computed_tokens >= 2 * performance.counted_tokens);
    service.finish().await;
}

#[tokio::test]
async fn of_three_workers_the_wrong_one_is_found() {
    let (mut service, undisturbed) = scene().await;
    add_wrong_worker(&mut service).await;
    service.add_worker("cpu:0");
    service.row_of(2).await;
    let id = service.client.submit(&audited_job()).await;
    let result = service.client.succeeded(id).await;
    assert_eq!(sums(&service, id).await, undisturbed);
    assert!(
        (result.audited - 1.0).abs() < f64::EPSILON,
        "{}",
        result.audited
    );
    counted_once(&mut service.ledger().await, id).await;
    all_agreed(&service, id).await;

    let wrong = service.row_of(1).await;
    assert_eq!(wrong.state, WorkerState::OutOfService, "{wrong:?}");
    let reason = wrong.out_of_service.expect("it has a reason");
    assert!(reason.contains(&id.to_string()), "{reason}");
    for right in [0, 2] {
        let right = service.row_of(right).await;
        assert_eq!(right.state, WorkerState::Live, "{right:?}");
        assert!(reason.contains(&right.name), "{reason}: {right:?}");
    }
    // Nothing that it computed counts, and it computes nothing more.
    let again = service.client.submit(&audited_job()).await;
    service.client.succeeded(again).await;
    assert_eq!(sums(&service, again).await, undisturbed);
    for (job, counts_only) in [(id, true), (again, false)] {
        for shard in service.client.shards(job).await {
            let of_wrong = shard.attempts.iter().filter(|a| a.worker == wrong.name);
            let of_wrong: Vec<_> = of_wrong
                .filter(|a| {
                    let counts = a.kind != AttemptKind::Audit
                        && a.outcome == Some(AttemptOutcome::Committed);
                    counts || !counts_only
                })
                .collect();
            assert!(of_wrong.is_empty(), "{of_wrong:?}");
        }
    }
    service.finish().await;
}

#[tokio::test]
async fn two_workers_that_disagree_fail_the_job() {
    let (mut service, _) = scene().await;
    add_wrong_worker(&mut service).await;
    let id = service.client.submit(&audited_job()).await;
    let error = service.client.failed(id).await;
    assert_eq!(error.code, AuditDisagrees, "{error:?}");
    for worker in [0, 1] {
        let row = service.row_of(worker).await;
        assert!(error.detail.contains(&row.name), "{error:?}: {row:?}");
        assert_eq!(row.state, WorkerState::Live, "nobody knows who is right");
    }
    assert!(error.shard.is_some(), "{error:?}");
    service.finish().await;
}

#[tokio::test]
async fn one_worker_alone_cannot_be_audited_and_the_result_says_so() {
    let (service, undisturbed) = scene().await;
    let id = service.client.submit(&audited_job()).await;
    let result = service.client.succeeded(id).await;
    assert!(result.audited.abs() < f64::EPSILON, "{}", result.audited);
    assert_eq!(sums(&service, id).await, undisturbed);
    let warned = |part: &str| result.warnings.iter().any(|warning| warning.contains(part));
    assert!(warned("audit"), "{:?}", result.warnings);
    let waived = |shard: &assay_api::ShardRow| shard.audit == Some(AuditState::Waived);
    assert!(service.client.shards(id).await.iter().all(waived));
    service.finish().await;
}
