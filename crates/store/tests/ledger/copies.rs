//! Copies: of shards that another device is slow with; whichever attempt ends first counts.

use assay_api::{
    AttemptKind::{Copy, Primary},
    AttemptOutcome::{self, Committed, Failed, Lost, Released, Superseded},
    BaselineRequest, ErrorCode, JobId, JobRequest, JobState, ShardState, WorkerId,
};
use assay_store::{AttemptFailure, Claimant, CommitOutcome, ShardClaim, Work};
use chrono::{DateTime, TimeDelta, Utc};

use crate::claims::{device, set_rate};
use crate::support::{LEASE, Ledger, compute, new_plan, request};

#[expect(clippy::unnecessary_wraps)] // as the store takes it
fn later(seconds: i64) -> Option<DateTime<Utc>> {
    Some(Utc::now() + TimeDelta::seconds(seconds))
}

/// Claims a shard as a device of this rate, at this time; none if it gets nothing.
async fn claim(
    ledger: &Ledger,
    claimant: &Claimant<'_>,
    now: Option<DateTime<Utc>>,
) -> Option<(i64, JobId, ShardClaim)> {
    let mut claims = ledger.store.claim(claimant, now).await.unwrap();
    assert!(claims.len() <= 1);
    let claim = claims.pop()?;
    match claim.work {
        Work::Shard(shard) => Some((claim.fence, claim.job, shard)),
        Work::Plan(_) => panic!("planned already"),
    }
}

async fn outcomes(ledger: &Ledger, job: JobId, shard: u32) -> Vec<Option<AttemptOutcome>> {
    let rows = ledger.store.shards(job, shard, 1).await.unwrap();
    rows[0].attempts.iter().map(|a| a.outcome).collect()
}

async fn state(ledger: &Ledger, job: JobId) -> ShardState {
    ledger.store.shards(job, 0, 1).await.unwrap()[0].state
}

async fn worker(ledger: &Ledger, name: &str) -> WorkerId {
    ledger.worker(name).await
}

/// Renews an attempt, and answers what is live of its worker.
async fn live(
    ledger: &Ledger,
    (worker, fence): (WorkerId, i64),
    now: Option<DateTime<Utc>>,
) -> Vec<i64> {
    let asked = [(fence, None)];
    let renewed = ledger.store.renew(worker, &asked, LEASE, now).await;
    renewed.unwrap().live
}

/// A job of one shard of 8 operations, which a slow device has claimed: it needs 8 seconds.
async fn scene() -> (Ledger, JobId, WorkerId, i64) {
    let ledger = Ledger::fresh().await;
    let slow = worker(&ledger, "slow").await;
    let job = ledger.planned(slow, &[8]).await;
    let (fence, _, shard) = claim(&ledger, &device(slow, "test", Some(1.0)), None)
        .await
        .unwrap();
    assert_eq!(shard.kind, Primary);
    (ledger, job, slow, fence)
}

/// The same with a copy by a fast device.
async fn copied() -> (Ledger, JobId, (WorkerId, i64), (WorkerId, i64), ShardClaim) {
    let (ledger, job, slow, primary) = scene().await;
    let fast = worker(&ledger, "fast").await;
    let (copy, _, shard) = claim(&ledger, &device(fast, "test", Some(100.0)), None)
        .await
        .unwrap();
    assert_eq!(shard.kind, Copy);
    (ledger, job, (slow, primary), (fast, copy), shard)
}

#[tokio::test]
async fn the_first_commit_counts_and_ends_the_other() {
    for copy_first in [true, false] {
        let (ledger, job, slow, fast, shard) = copied().await;
        // Two are enough.
        let third = worker(&ledger, "third").await;
        let none = claim(&ledger, &device(third, "test", Some(1e9)), later(1000)).await;
        assert!(none.is_none());

        let (first, second) = if copy_first {
            (fast, slow)
        } else {
            (slow, fast)
        };
        let outcome = compute(&shard);
        let commit = async |(worker, fence)| ledger.commit(worker, fence, &outcome).await;
        assert_eq!(commit(first).await, CommitOutcome::Counted);
        assert!(
            live(&ledger, second, None).await.is_empty(),
            "it learns to stop"
        );
        assert_eq!(commit(second).await, CommitOutcome::Late);
        assert_eq!(commit(first).await, CommitOutcome::Counted);
        let mut expected = [Some(Superseded), Some(Committed)];
        if !copy_first {
            expected.reverse();
        }
        assert_eq!(outcomes(&ledger, job, 0).await, expected);
        let done = ledger.state(job).await;
        assert_eq!(
            (done.state, done.progress.scored_tokens),
            (JobState::Succeeded, 8)
        );
        let performance = ledger.store.result(job).await.unwrap().unwrap().performance;
        assert_eq!(performance.counted_tokens, 8);
        assert_eq!(performance.computed_tokens, 16, "and the rest in vain");
    }
}

#[tokio::test]
async fn a_copy_must_end_clearly_sooner() {
    let (ledger, _, slow, _) = scene().await;
    let other = worker(&ledger, "other").await;
    let offered = async |rate, now| {
        let found = claim(&ledger, &device(other, "test", rate), now).await;
        if let Some((fence, ..)) = &found {
            ledger
                .store
                .release_attempt(other, *fence, 0)
                .await
                .unwrap();
        }
        found.is_some()
    };
    // 8 s are left. 6.6 s are too many: they should be less than 80 %.
    assert!(!offered(Some(1.2), None).await);
    assert!(offered(Some(1.3), None).await);
    // 2 s are left after 6 s, and the rate must be five times as good.
    assert!(!offered(Some(4.0), later(6)).await);
    assert!(offered(Some(6.0), later(6)).await);
    // 20 s late, it may be late by as much again.
    assert!(offered(Some(0.6), later(28)).await);
    assert!(!offered(Some(0.4), later(28)).await);
    // Nothing is known of the device, or nothing of it at such jobs.
    assert!(!offered(None, later(1000)).await);
    set_rate(&ledger, "test", 1.3).await;
    assert!(offered(None, None).await);

    // Never by the device itself, but by one beside it.
    let itself = device(slow, "test", Some(1e9));
    assert!(claim(&ledger, &itself, later(1000)).await.is_none());
    let beside = Claimant {
        device: "cpu:1",
        ..itself
    };
    assert!(claim(&ledger, &beside, None).await.is_some());
}

#[tokio::test]
async fn without_an_expectation_it_takes_as_long_again() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (worker(&ledger, "one").await, worker(&ledger, "two").await);
    ledger.planned(one, &[8]).await;
    claim(&ledger, &device(one, "test", None), None)
        .await
        .unwrap();
    let other = device(two, "test", Some(1.0));
    assert!(claim(&ledger, &other, later(9)).await.is_none());
    assert!(claim(&ledger, &other, later(11)).await.is_some());
}

#[tokio::test]
async fn the_one_that_takes_longest_of_the_most_urgent_job_is_copied() {
    let ledger = Ledger::fresh().await;
    let slow = worker(&ledger, "slow").await;
    let mut jobs = Vec::new();
    for priority in [0, 5] {
        let wanted = JobRequest {
            priority,
            ..request(&["a"])
        };
        jobs.push(ledger.job_of(&wanted).await);
    }
    for _ in 0..2 {
        ledger.commit_plan(slow, &new_plan(&[&[8, 7, 6]])).await;
    }
    // In the urgent job 7 takes longest, and all of the other job takes longer still.
    for (name, rate) in ["a", "b", "c", "d", "e", "f"]
        .iter()
        .zip([2.0, 0.5, 1.0, 0.1, 0.1, 0.1])
    {
        let worker = worker(&ledger, name).await;
        claim(&ledger, &device(worker, "test", Some(rate)), None)
            .await
            .unwrap();
    }
    let mut copied = Vec::new();
    let fast = worker(&ledger, "fast").await;
    while let Some((_, job, shard)) = claim(&ledger, &device(fast, "test", Some(1e9)), None).await {
        assert_eq!(shard.kind, Copy);
        copied.push((job, shard.index));
    }
    let expected = [(1, 1), (1, 2), (1, 0), (0, 0), (0, 1), (0, 2)];
    assert_eq!(copied, expected.map(|(job, shard)| (jobs[job], shard)));
}

#[tokio::test]
async fn a_copy_that_ends_otherwise_leaves_the_primary() {
    for how in [Lost, Failed, Released] {
        let (ledger, job, (slow, primary), (fast, copy), shard) = copied().await;
        let now = later(10);
        let asked = [(primary, None)];
        ledger.store.renew(slow, &asked, LEASE, now).await.unwrap();
        match how {
            Lost => {
                let reaped = ledger.store.reap(later(16)).await.unwrap();
                assert_eq!(reaped.attempts, 1);
            }
            Failed => {
                let failure = AttemptFailure {
                    code: ErrorCode::ComputeFailed,
                    detail: "boom".to_owned(),
                    field: None,
                    is_final: false,
                    computed_tokens: 0,
                };
                ledger
                    .store
                    .fail_attempt(fast, copy, &failure)
                    .await
                    .unwrap();
            }
            _ => ledger.store.release_attempt(fast, copy, 3).await.unwrap(),
        }
        assert_eq!(outcomes(&ledger, job, 0).await, [None, Some(how)]);
        assert_eq!(state(&ledger, job).await, ShardState::Running);
        let dropped = ledger.commit(fast, copy, &compute(&shard)).await;
        assert_eq!(dropped, CommitOutcome::Late);
        let counted = ledger.commit(slow, primary, &compute(&shard)).await;
        assert_eq!(counted, CommitOutcome::Counted);
        assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
    }
}

#[tokio::test]
async fn a_primary_that_ends_otherwise_leaves_the_copy() {
    let (ledger, job, (slow, primary), (fast, copy), shard) = copied().await;
    live(&ledger, (fast, copy), later(10)).await;
    assert_eq!(ledger.store.reap(later(16)).await.unwrap().attempts, 1);
    assert_eq!(outcomes(&ledger, job, 0).await, [Some(Lost), None]);
    assert_eq!(state(&ledger, job).await, ShardState::Running);
    // The copy may need help in its turn. Then the new one is the primary.
    let third = worker(&ledger, "third").await;
    let (again, _, twin) = claim(&ledger, &device(third, "test", Some(1e9)), None)
        .await
        .unwrap();
    assert_eq!((twin.kind, twin.index), (Primary, 0));
    assert!(
        claim(&ledger, &device(slow, "test", Some(1e9)), None)
            .await
            .is_none()
    );
    // The last live attempt that goes puts the shard back.
    ledger.store.release_attempt(fast, copy, 0).await.unwrap();
    assert_eq!(state(&ledger, job).await, ShardState::Running);
    ledger.store.release_attempt(third, again, 0).await.unwrap();
    assert_eq!(state(&ledger, job).await, ShardState::Queued);
    assert_eq!(
        ledger.commit(slow, primary, &compute(&shard)).await,
        CommitOutcome::Late
    );
    ledger.run_all(fast).await;
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
}

#[tokio::test]
async fn the_end_of_the_job_ends_both() {
    let (ledger, job, slow, fast, _) = copied().await;
    ledger.store.cancel_job(job).await.unwrap();
    for (worker, fence) in [slow, fast] {
        assert!(live(&ledger, (worker, fence), None).await.is_empty());
    }
    let cancelled = Some(AttemptOutcome::Cancelled);
    assert_eq!(outcomes(&ledger, job, 0).await, [cancelled, cancelled]);
}

#[tokio::test]
async fn nothing_is_copied_while_the_baseline_is_measured() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (worker(&ledger, "one").await, worker(&ledger, "two").await);
    let wanted = JobRequest {
        baseline: BaselineRequest::Measure,
        ..request(&["a"])
    };
    ledger.job_of(&wanted).await;
    ledger.commit_plan(one, &new_plan(&[&[8, 7, 6, 5]])).await;
    let sample = ledger
        .store
        .claim(&device(one, "test", Some(1.0)), None)
        .await;
    assert_eq!(sample.unwrap().len(), 3);
    let other = device(two, "test", Some(1e9));
    assert!(claim(&ledger, &other, later(1000)).await.is_none());
}

/// Many devices want to copy the same shards while these are counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_race_with_commits() {
    let ledger = std::sync::Arc::new(Ledger::fresh().await);
    let slow = worker(&ledger, "slow").await;
    let job = ledger.planned(slow, &[8; 12]).await;
    let mut held = Vec::new();
    while let Some((fence, _, shard)) =
        claim(&ledger, &device(slow, "test", Some(1e-3)), None).await
    {
        held.push((fence, shard));
    }
    assert_eq!(held.len(), 12);
    let mut racing = tokio::task::JoinSet::new();
    for index in 0..4 {
        let ledger = std::sync::Arc::clone(&ledger);
        racing.spawn(async move {
            let fast = worker(&ledger, &format!("fast {index}")).await;
            let claimant = device(fast, "test", Some(1e9));
            while ledger.state(job).await.state == JobState::Running {
                if let Some((fence, _, shard)) = claim(&ledger, &claimant, None).await {
                    ledger.commit(fast, fence, &compute(&shard)).await;
                }
            }
        });
    }
    for (fence, shard) in held {
        ledger.commit(slow, fence, &compute(&shard)).await;
    }
    while let Some(ended) = racing.join_next().await {
        ended.unwrap();
    }
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
    for row in ledger.store.shards(job, 0, 100).await.unwrap() {
        let count = |outcome| {
            let outcome = Some(outcome);
            row.attempts.iter().filter(|a| a.outcome == outcome).count()
        };
        assert_eq!(count(Committed), 1);
        assert_eq!(count(Committed) + count(Superseded), row.attempts.len());
    }
}
