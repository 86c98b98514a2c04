//! A shard again that another device is slow with, and the baseline that one device measures alone.

use assay_api::{
    AttemptKind, AttemptOutcome, AttemptRow, BaselineSource, JobId, JobResult, WorkerState,
};
use assay_testkit::{LIMIT, eventually};
use serde_json::json;

use crate::ledger::counted_once;
use crate::long_job::{job, roots, sums};
use crate::service::Service;

async fn attempts(service: &Service, id: JobId) -> Vec<AttemptRow> {
    let shards = service.client.shards(id).await.into_iter();
    shards.flat_map(|shard| shard.attempts).collect()
}

fn is(attempt: &AttemptRow, kind: AttemptKind, outcome: AttemptOutcome) -> bool {
    (attempt.kind, attempt.outcome) == (kind, Some(outcome))
}

#[tokio::test]
async fn a_copy_overtakes_a_slow_worker() {
    let mut service = Service::start(roots()).await;
    // Longer than the rest of the job takes.
    service.add_worker_with("cpu:1", &["--fault", "delay=50"]);
    let slow = service.row_of(0).await.name;
    let id = service.client.submit(&job()).await;
    eventually("the slow worker to hold a shard", LIMIT, async || {
        let held = attempts(&service, id).await;
        (!held.is_empty()).then_some(())
    })
    .await;
    service.add_worker("cpu:0");
    let fast = service.row_of(1).await.name;
    let result = service.client.succeeded(id).await;

    let held = service.row_of(0).await;
    assert_eq!(
        (held.state, held.running),
        (WorkerState::Live, 0),
        "{held:?}"
    );
    let mut overtaken = 0;
    for shard in service.client.shards(id).await {
        let counted = |a: &&AttemptRow| a.outcome == Some(AttemptOutcome::Committed);
        let counted = shard.attempts.iter().find(counted).expect("it is done");
        assert_eq!(counted.worker, fast, "{shard:?}");
        if let Some(first) = shard.attempts.iter().find(|a| a.worker == slow) {
            assert!(
                is(first, AttemptKind::Primary, AttemptOutcome::Superseded),
                "{shard:?}"
            );
            assert_eq!(counted.kind, AttemptKind::Copy, "{shard:?}");
            overtaken += 1;
        } else {
            assert_eq!(counted.kind, AttemptKind::Primary, "{shard:?}");
        }
    }
    assert!(overtaken > 0);
    assert_eq!(counted_once(&mut service.ledger().await, id).await, 0);
    let performance = &result.performance;
    assert!(performance.computed_tokens >= performance.counted_tokens);

    // It computes for as long as it is told; nobody waits for it.
    service.workers[0].kill().await;
    let again = service.client.submit(&job()).await;
    service.client.succeeded(again).await;
    assert_eq!(sums(&service, id).await, sums(&service, again).await);
    service.finish().await;
}

async fn with_baseline(service: &Service, baseline: &str) -> (JobId, JobResult) {
    let mut job = job();
    job["baseline"] = json!(baseline);
    let id = service.client.submit(&job).await;
    (id, service.client.succeeded(id).await)
}

#[tokio::test]
async fn a_baseline_is_measured_by_one_device_alone() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0,cpu:1");
    service.row_of(0).await;
    let (id, result) = with_baseline(&service, "measure").await;

    let (solo, others): (Vec<_>, Vec<_>) = attempts(&service, id)
        .await
        .into_iter()
        .partition(|attempt| attempt.solo);
    assert!(solo.len() >= 3, "{solo:?}");
    assert!(others.len() > solo.len(), "{others:?}");
    let ends = |attempts: &[AttemptRow]| {
        let starts = attempts.iter().map(|a| a.started_at).min();
        let ends = attempts.iter().filter_map(|a| a.finished_at).max();
        starts.zip(ends).expect("there are some")
    };
    assert!(ends(&solo).1 <= ends(&others).0, "{solo:?} {others:?}");
    for attempt in &solo {
        assert_eq!(attempt.device, solo[0].device, "{solo:?}");
        assert!(
            is(attempt, AttemptKind::Primary, AttemptOutcome::Committed),
            "{attempt:?}"
        );
    }

    let performance = &result.performance;
    let baseline = performance.baseline.as_ref().expect("it was measured");
    assert_eq!(baseline.source, BaselineSource::Measured);
    assert_eq!(baseline.device_kind, solo[0].device_kind);
    let speedup = performance.speedup.expect("the baseline is known");
    let rate = performance.distributed_tokens_per_second.expect("it ran");
    println!("{performance:#?}");
    assert!((speedup - rate / baseline.tokens_per_second).abs() < 1e-9 * speedup);
    assert!(speedup > 0.0);
    let efficiency = performance.efficiency.expect("its kind is known");
    assert!(
        (efficiency - speedup / 2.0).abs() < 1e-9,
        "{efficiency} {speedup}"
    );
    assert_eq!(performance.devices.len(), 2);
    let shards: u64 = performance.devices.iter().map(|device| device.shards).sum();
    assert_eq!(shards, service.client.shards(id).await.len() as u64);
    assert_eq!(counted_once(&mut service.ledger().await, id).await, 0);

    // The next job takes the measured rate over, or leaves it.
    let (second, result) = with_baseline(&service, "auto").await;
    let calibrated = result
        .performance
        .baseline
        .expect("an earlier job measured it");
    assert_eq!(calibrated.source, BaselineSource::Calibrated);
    assert!(attempts(&service, second).await.iter().all(|a| !a.solo));
    let (third, result) = with_baseline(&service, "skip").await;
    assert_eq!(result.performance.baseline, None);
    assert_eq!(result.performance.speedup, None);
    assert_eq!(sums(&service, id).await, sums(&service, second).await);
    assert_eq!(sums(&service, id).await, sums(&service, third).await);
    service.finish().await;
}
