//! Workers that are given no work any more, and the trouble that workers tell of themselves.

use assay_api::{AttemptOutcome, ErrorCode, JobId, JobState, WorkerId, WorkerRow, WorkerState};
use assay_store::CommitOutcome::{Counted, Disagrees, Late};
use assay_store::{AttemptFailure, NewWorker, Work};

use crate::audits::{said, stay, worker};
use crate::support::{LEASE, Ledger, compute, new_plan};

/// Six shards of equal size.
const SIX: &[u64] = &[8; 6];

fn failure(detail: &str) -> AttemptFailure {
    AttemptFailure {
        code: ErrorCode::ComputeFailed,
        detail: detail.to_owned(),
        field: None,
        is_final: false,
        computed_tokens: 0,
    }
}

async fn row(ledger: &Ledger, worker: WorkerId) -> WorkerRow {
    let rows = ledger.store.workers(None, 100).await.unwrap();
    rows.into_iter().find(|row| row.id == worker).unwrap()
}

/// Claims a shard and fails it.
async fn fail(ledger: &Ledger, worker: WorkerId, detail: &str) -> u32 {
    let (fence, shard) = ledger.claim_shard(worker).await;
    let store = &ledger.store;
    store
        .fail_attempt(worker, fence, &failure(detail))
        .await
        .unwrap();
    shard.index
}

async fn count(ledger: &Ledger, worker: WorkerId) {
    let (fence, shard) = ledger.claim_shard(worker).await;
    let counted = ledger.commit(worker, fence, &compute(&shard)).await;
    assert_eq!(counted, Counted);
}

async fn is_out(ledger: &Ledger, worker: WorkerId) -> bool {
    row(ledger, worker).await.out_of_service.is_some()
}

/// Two workers, and a job that the second one has planned.
async fn scene() -> (Ledger, WorkerId, WorkerId, JobId) {
    let ledger = Ledger::fresh().await;
    let bad = worker(&ledger, "bad", &["test"]).await;
    let good = worker(&ledger, "good", &["test"]).await;
    let job = ledger.planned(good, SIX).await;
    (ledger, bad, good, job)
}

#[tokio::test]
async fn three_failures_while_others_succeed() {
    let (ledger, bad, good, job) = scene().await;
    let (held, _) = ledger.claim_shard(bad).await;
    for index in 1..=3 {
        assert!(!is_out(&ledger, bad).await);
        count(&ledger, good).await;
        fail(&ledger, bad, &format!("boom {index}")).await;
    }
    let out = row(&ledger, bad).await;
    assert_eq!(out.state, WorkerState::OutOfService);
    let reason = out.out_of_service.unwrap();
    assert!(
        reason.contains("3 shards") && reason.contains("boom 3"),
        "{reason}"
    );
    assert!(ledger.claim(bad).await.is_none());
    let renewed = ledger.store.renew(bad, &[(held, None)], LEASE, None).await;
    let renewed = renewed.unwrap();
    assert_eq!(renewed.out_of_service.as_ref(), Some(&reason));
    assert_eq!(renewed.live, [held], "the reaper comes soon");
    assert_eq!(ledger.store.reap(None).await.unwrap().attempts, 1);
    ledger.run_all(good).await;
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);

    // What it held went back at no cost, and the result names it.
    let shards = ledger.store.shards(job, 0, 100).await.unwrap();
    let attempts = shards.iter().flat_map(|s| &s.attempts);
    let held = attempts.clone().find(|a| a.fence == held).unwrap();
    assert_eq!(held.outcome, Some(AttemptOutcome::Released));
    let warnings = said(&ledger, job).await.1;
    assert_eq!(
        warnings,
        [format!("the worker bad was taken out of service: {reason}")]
    );

    // Started anew, it is another worker.
    let again = worker(&ledger, "bad", &["test"]).await;
    let next = ledger.job(&["b"]).await;
    assert!(matches!(
        ledger.claim(again).await.unwrap().work,
        Work::Plan(_)
    ));
    let warnings = said(&ledger, next).await.1;
    assert!(warnings.is_empty(), "{warnings:?}");
    ledger.store.stop_worker(bad).await.unwrap();
    assert_eq!(row(&ledger, bad).await.state, WorkerState::Stopped);
}

#[tokio::test]
async fn not_if_it_succeeds_between() {
    let (ledger, bad, good, _) = scene().await;
    fail(&ledger, bad, "boom").await;
    count(&ledger, good).await;
    fail(&ledger, bad, "boom").await;
    count(&ledger, bad).await;
    fail(&ledger, bad, "boom").await;
    assert!(!is_out(&ledger, bad).await);
}

#[tokio::test]
async fn not_if_nobody_succeeds() {
    let (ledger, bad, good, job) = scene().await;
    // Before the first failure.
    count(&ledger, good).await;
    for _ in 0..3 {
        fail(&ledger, bad, "boom").await;
    }
    assert!(!is_out(&ledger, bad).await, "perhaps the job is at fault");
    fail(&ledger, good, "boom").await;
    assert_eq!(ledger.state(job).await.state, JobState::Failed);
    assert!(!is_out(&ledger, bad).await && !is_out(&ledger, good).await);
}

#[tokio::test]
async fn not_for_one_job_because_of_another() {
    let (ledger, bad, good, _) = scene().await;
    for _ in 0..2 {
        fail(&ledger, bad, "boom").await;
    }
    ledger.job(&["b"]).await;
    ledger.commit_plan(good, &new_plan(&[SIX])).await;
    fail(&ledger, bad, "boom").await;
    assert!(
        !is_out(&ledger, bad).await,
        "nobody computed a shard of this job"
    );
}

#[tokio::test]
async fn not_the_only_worker() {
    let (ledger, bad, good, _) = scene().await;
    fail(&ledger, bad, "boom").await;
    fail(&ledger, bad, "boom").await;
    count(&ledger, good).await;
    ledger.store.stop_worker(good).await.unwrap();
    let mut failed = 0;
    // Alone it gets its own failures again; the second one of a shard ends the job.
    while let Some(claim) = ledger.claim(bad).await {
        let store = &ledger.store;
        store
            .fail_attempt(bad, claim.fence, &failure("boom"))
            .await
            .unwrap();
        failed += 1;
    }
    assert!(failed >= 1);
    assert!(!is_out(&ledger, bad).await);
}

#[tokio::test]
async fn plannings_count_too() {
    let ledger = Ledger::fresh().await;
    let bad = worker(&ledger, "bad", &["test"]).await;
    let good = worker(&ledger, "good", &["test"]).await;
    for index in 0..3 {
        assert!(!is_out(&ledger, bad).await);
        let job = ledger.job(&[&format!("a{index}")]).await;
        let fence = ledger.claim(bad).await.unwrap().fence;
        let store = &ledger.store;
        store
            .fail_attempt(bad, fence, &failure("boom"))
            .await
            .unwrap();
        ledger
            .commit_plan(good, &new_plan(&[&[8, 8 + index]]))
            .await;
        assert_eq!(ledger.state(job).await.state, JobState::Running);
    }
    // The last planning was done by the other one after the third failure.
    assert!(is_out(&ledger, bad).await);
}

#[tokio::test]
async fn a_plan_of_a_worker_out_of_service_is_not_taken() {
    let ledger = Ledger::fresh().await;
    let bad = worker(&ledger, "bad", &["test"]).await;
    let good = worker(&ledger, "good", &["test"]).await;
    let job = ledger.job(&["a"]).await;
    let fence = ledger.claim(bad).await.unwrap().fence;
    sqlx::query(
        "update workers set out_of_service_at = now(), out_of_service_reason = 'wrong'
         where id = $1",
    )
    .bind(bad)
    .execute(&mut ledger.database.connect().await)
    .await
    .unwrap();
    let plan = new_plan(&[&[8, 8]]);
    for _ in 0..2 {
        let stored = ledger.store.commit_plan(bad, fence, &plan).await;
        assert!(!stored.unwrap());
        assert_eq!(ledger.state(job).await.state, JobState::Queued);
    }
    ledger.commit_plan(good, &plan).await;
    assert_eq!(ledger.state(job).await.state, JobState::Running);
}

#[tokio::test]
async fn trouble_is_told_of_a_worker() {
    let (ledger, bad, _, _) = scene().await;
    assert_eq!(row(&ledger, bad).await.last_error, None);
    for detail in ["a while", "longer\0"] {
        let told = ledger
            .store
            .report_trouble(bad, ErrorCode::DatabaseUnreachable, detail);
        told.await.unwrap();
    }
    let out = row(&ledger, bad).await;
    let error = out.last_error.unwrap();
    assert_eq!(error.code, ErrorCode::DatabaseUnreachable);
    assert_eq!(error.detail, "longer\\0");
    assert_eq!(out.state, WorkerState::Live, "it goes on");
}

#[tokio::test]
async fn late_results_are_counted_by_worker() {
    let (ledger, slow, good, _) = scene().await;
    let (one, shard) = ledger.claim_shard(slow).await;
    let (two, other) = ledger.claim_shard(slow).await;
    for fence in [one, two] {
        ledger.store.release_attempt(slow, fence, 0).await.unwrap();
    }
    let outcomes = [(one, &compute(&shard)), (two, &compute(&other))];
    let answers = ledger.store.commit_shards(slow, &outcomes).await;
    assert_eq!(answers.unwrap(), [Late; 2]);
    assert_eq!(row(&ledger, slow).await.late_commits, 2);
    assert_eq!(row(&ledger, good).await.late_commits, 0);
}

#[tokio::test]
async fn what_was_computed_in_vain_is_told() {
    let (ledger, one, two, job) = scene().await;
    let computed = async || {
        let result = ledger.store.result(job).await.unwrap().unwrap();
        result.performance.computed_tokens
    };
    let (fence, shard) = ledger.claim_shard(one).await;
    ledger.store.release_attempt(one, fence, 5).await.unwrap();
    assert_eq!(computed().await, 5);
    // Told after it was lost, and told again by one who knows less.
    let (fence, again) = ledger.claim_shard(one).await;
    assert_eq!(again.index, shard.index);
    let late = chrono::Utc::now() + LEASE + chrono::TimeDelta::hours(2);
    ledger.store.reap(Some(late)).await.unwrap();
    for tokens in [7, 3] {
        ledger
            .store
            .release_attempt(one, fence, tokens)
            .await
            .unwrap();
    }
    assert_eq!(computed().await, 12);
    // What counts is not changed by it, nor by another worker.
    let (fence, shard) = ledger.claim_shard(two).await;
    ledger.commit(two, fence, &compute(&shard)).await;
    for worker in [one, two] {
        ledger
            .store
            .release_attempt(worker, fence, 1000)
            .await
            .unwrap();
    }
    assert_eq!(computed().await, 20);
    stay(&ledger, one).await;
}

/// Results of several jobs come in one call, and the answers in the order of the call.
#[tokio::test]
async fn a_batch_is_committed_job_by_job() {
    let ledger = Ledger::fresh().await;
    let worker = worker(&ledger, "w", &["test"]).await;
    let (mut jobs, mut held) = (Vec::new(), Vec::new());
    for lengths in [&[8, 8][..], &[8, 7]] {
        jobs.push(ledger.planned(worker, lengths).await);
        for _ in 0..2 {
            let (fence, shard) = ledger.claim_shard(worker).await;
            held.push((fence, compute(&shard)));
        }
    }
    held[2].1.spans_digest.push('0');
    let unknown = (i64::MAX, &held[0].1);
    let of = |index: usize| (held[index].0, &held[index].1);
    let outcomes = [of(3), unknown, of(1), of(2), of(0)];
    // The first shard of the second job comes before the second one, and fails it.
    let answers = ledger.store.commit_shards(worker, &outcomes).await.unwrap();
    assert_eq!(answers, [Late, Late, Counted, Disagrees, Counted]);
    let answers = ledger.store.commit_shards(worker, &outcomes).await.unwrap();
    assert_eq!(answers, [Late, Late, Counted, Late, Counted], "told again");
    let states = [
        ledger.state(jobs[0]).await.state,
        ledger.state(jobs[1]).await.state,
    ];
    assert_eq!(states, [JobState::Succeeded, JobState::Failed]);
    let nothing = ledger.store.commit_shards(worker, &[]).await.unwrap();
    assert!(nothing.is_empty());
}

#[tokio::test]
async fn a_worker_that_registers_again_is_as_it_was() {
    let (ledger, bad, good, _) = scene().await;
    for _ in 0..3 {
        count(&ledger, good).await;
        fail(&ledger, bad, "boom").await;
    }
    assert!(is_out(&ledger, bad).await);
    let same = NewWorker {
        id: bad,
        name: "bad",
        version: "test",
        devices: &[],
    };
    let store = &ledger.store;
    store.register_worker(&same, LEASE, None).await.unwrap();
    assert!(is_out(&ledger, bad).await);
    assert!(ledger.claim(bad).await.is_none());
}
