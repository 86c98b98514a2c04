//! Audits: who may make them, when two workers agree, and what becomes of those that nobody makes.

mod chaos;
mod disputes;
mod races;
mod revoked;

use std::time::Duration;

use assay_api::{
    AttemptKind, AttemptOutcome, AuditState, BaselineRequest, ErrorCode, JobId, JobRequest,
    JobState,
};
use assay_api::{ShardRow, WorkerId};
use assay_store::{
    AttemptFailure, Claim, Claimant, CommitOutcome, Renewed, ShardClaim, ShardOutcome, Work,
};
use chrono::{TimeDelta, Utc};

use crate::support::{LEASE, Ledger, claimant_of, compute, expected, new_plan, request};

/// Three shards of equal size.
const THREE: &[u64] = &[8, 8, 8];

/// A worker with a device for each of these kinds, that stays live however long a test takes.
pub(crate) async fn worker(ledger: &Ledger, name: &str, kinds: &[&str]) -> WorkerId {
    let worker = ledger.worker_with(name, kinds).await;
    stay(ledger, worker).await;
    worker
}

pub(crate) async fn stay(ledger: &Ledger, worker: WorkerId) {
    renew(ledger, worker, &[]).await;
}

/// Renews the worker for an hour, and these attempts.
pub(crate) async fn renew(ledger: &Ledger, worker: WorkerId, fences: &[i64]) -> Renewed {
    let attempts: Vec<_> = fences.iter().map(|fence| (*fence, None)).collect();
    let hour = Duration::from_hours(1);
    let renewed = ledger.store.renew(worker, &attempts, hour, None).await;
    renewed.unwrap()
}

/// A job of which this share of the shards is audited. Devices here are so slow that the baseline
/// of any job would be worth its while.
pub(crate) fn audited(share: f64) -> JobRequest {
    JobRequest {
        audit: share,
        baseline: BaselineRequest::Skip,
        ..request(&["a"])
    }
}

/// A planned job with documents of these lengths, of which this share of the shards is audited.
pub(crate) async fn planned(
    ledger: &Ledger,
    planner: WorkerId,
    lengths: &[u64],
    share: f64,
) -> JobId {
    let job = ledger.job_of(&audited(share)).await;
    ledger.commit_plan(planner, &new_plan(&[lengths])).await;
    job
}

fn shard_of(claim: Claim) -> (i64, ShardClaim) {
    match claim.work {
        Work::Shard(shard) => (claim.fence, shard),
        Work::Plan(_) => panic!("not planned"),
    }
}

/// Claims the next shard for a device `cpu:0` of this kind, which must be for this.
pub(crate) async fn take(
    ledger: &Ledger,
    worker: WorkerId,
    device_kind: &str,
    why: AttemptKind,
) -> (i64, ShardClaim) {
    let claim = ledger.claim_one(&claimant_of(worker, device_kind)).await;
    let (fence, shard) = shard_of(claim.expect("something to claim"));
    assert_eq!(shard.kind, why);
    (fence, shard)
}

/// What a worker computes that is wrong by this many units. It is as slow as [`claimant_of`] says:
/// so every device gets one shard at a time, in their order.
pub(crate) fn off(shard: &ShardClaim, units: i64) -> ShardOutcome {
    let mut outcome = compute(shard);
    outcome.sums[0].units += units;
    outcome.seconds = shard.flops * 1e3;
    outcome
}

/// What a worker computes that is right.
pub(crate) fn right(shard: &ShardClaim) -> ShardOutcome {
    off(shard, 0)
}

/// Claims a shard and commits it, wrong by this many units. Answers its index.
pub(crate) async fn bring(
    ledger: &Ledger,
    worker: WorkerId,
    device_kind: &str,
    why: AttemptKind,
    units: i64,
) -> u32 {
    let (fence, shard) = take(ledger, worker, device_kind, why).await;
    let committed = ledger.commit(worker, fence, &off(&shard, units)).await;
    let wanted = match why {
        AttemptKind::Audit => CommitOutcome::Compared,
        _ => CommitOutcome::Counted,
    };
    assert_eq!(committed, wanted);
    shard.index
}

/// Does everything that there is for it to do, rightly.
pub(crate) async fn finish(ledger: &Ledger, worker: WorkerId) {
    while let Some(claim) = ledger.claim_one(&claimant_of(worker, "test")).await {
        let (fence, shard) = shard_of(claim);
        ledger.commit(worker, fence, &right(&shard)).await;
    }
}

pub(crate) async fn shard(ledger: &Ledger, job: JobId, index: u32) -> ShardRow {
    let shards = ledger.store.shards(job, index, 1).await.unwrap();
    shards.into_iter().next().unwrap()
}

/// How the attempts at a shard ended, oldest first.
pub(crate) async fn outcomes(
    ledger: &Ledger,
    job: JobId,
    index: u32,
) -> Vec<(AttemptKind, Option<AttemptOutcome>)> {
    let attempts = shard(ledger, job, index).await.attempts;
    attempts.iter().map(|a| (a.kind, a.outcome)).collect()
}

pub(crate) async fn audits(ledger: &Ledger, job: JobId) -> Vec<Option<AuditState>> {
    let shards = ledger.store.shards(job, 0, 1000).await.unwrap();
    shards.into_iter().map(|shard| shard.audit).collect()
}

/// That the job ended well, with the sums of an undisturbed run.
pub(crate) async fn is_right(ledger: &Ledger, job: JobId, lengths: &[u64]) {
    let ended = ledger.state(job).await;
    assert_eq!(ended.state, JobState::Succeeded, "{ended:?}");
    let documents = ledger.store.documents(job, 0, 0, 1000).await.unwrap();
    let sums: Vec<String> = documents.into_iter().map(|d| d.nll_exact).collect();
    assert_eq!(sums, expected(lengths));
}

/// The share that was audited, and the warnings of the job, without those of its rows.
pub(crate) async fn said(ledger: &Ledger, job: JobId) -> (f64, Vec<String>) {
    let result = ledger.store.result(job).await.unwrap().unwrap();
    let of_job = result
        .warnings
        .into_iter()
        .filter(|w| !w.starts_with("a: "));
    (result.audited, of_job.collect())
}

async fn error(ledger: &Ledger, job: JobId) -> assay_api::JobError {
    ledger.state(job).await.error.expect("the job has failed")
}

fn failure() -> AttemptFailure {
    AttemptFailure {
        code: ErrorCode::ComputeFailed,
        detail: "boom".to_owned(),
        field: None,
        is_final: true,
        computed_tokens: 3,
    }
}

#[tokio::test]
#[allow(clippy::float_cmp)] // small fractions
async fn two_workers_agree_and_the_job_waits_for_it() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, THREE, 1.0).await;
    for index in 0..3 {
        let counted = bring(&ledger, one, "test", AttemptKind::Primary, 0).await;
        assert_eq!(counted, index);
    }
    assert!(ledger.claim(one).await.is_none(), "nobody audits himself");
    let waiting = ledger.state(job).await;
    assert_eq!(waiting.state, JobState::Running);
    assert_eq!(waiting.progress.scored_tokens, 24);
    let early = ledger.store.result(job).await.unwrap().unwrap();
    assert_eq!(early.datasets[0].nll, None, "it may all be taken back");

    let (fence, first) = take(&ledger, two, "test", AttemptKind::Audit).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let (other, second) = take(&ledger, three, "test", AttemptKind::Audit).await;
    assert_eq!((first.index, second.index), (0, 1), "one auditor at a time");
    let committed = ledger.commit(two, fence, &right(&first)).await;
    assert_eq!(committed, CommitOutcome::Compared);
    let again = ledger.commit(two, fence, &right(&first)).await;
    assert_eq!(again, CommitOutcome::Compared, "its answer may be lost");
    assert_eq!(said(&ledger, job).await.0, 1.0 / 3.0);
    assert_eq!(bring(&ledger, two, "test", AttemptKind::Audit, 0).await, 2);
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    ledger.commit(three, other, &right(&second)).await;

    is_right(&ledger, job, THREE).await;
    assert_eq!(said(&ledger, job).await, (1.0, vec![]));
    assert_eq!(audits(&ledger, job).await, [Some(AuditState::Agreed); 3]);
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert_eq!(result.performance.counted_tokens, 24);
    assert_eq!(result.performance.computed_tokens, 48);
    assert_eq!(result.device_kinds, ["test"]);
    // One kind, nothing split: other jobs may take these numbers.
    let next = ledger.job(&["a"]).await;
    ledger.commit_plan(two, &new_plan(&[THREE])).await;
    is_right(&ledger, next, THREE).await;
    assert_eq!(said(&ledger, next).await.0, 0.0, "it has no shards");
    // So may jobs that ask for no more audits than these numbers had.
    let next = ledger.job_of(&audited(1.0)).await;
    ledger.commit_plan(two, &new_plan(&[THREE])).await;
    is_right(&ledger, next, THREE).await;
}

#[tokio::test]
async fn a_share_of_the_shards_is_audited() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, &[8; 10], 0.25).await;
    finish(&ledger, one).await;
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    finish(&ledger, two).await;
    is_right(&ledger, job, &[8; 10]).await;
    assert!((said(&ledger, job).await.0 - 0.3).abs() < 1e-12);
    let audited = audits(&ledger, job).await;
    let which: Vec<usize> = (0..10).filter(|shard| audited[*shard].is_some()).collect();
    assert_eq!(which, [0, 4, 8]);
}

#[tokio::test]
#[allow(clippy::float_cmp)]
async fn one_worker_alone_is_not_audited_and_waits_for_nothing() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    // Not live any more, and out of service: neither counts as somebody.
    let gone = worker(&ledger, "gone", &["test"]).await;
    ledger.store.stop_worker(gone).await.unwrap();
    let job = planned(&ledger, one, &[8; 4], 0.5).await;
    finish(&ledger, one).await;
    is_right(&ledger, job, &[8; 4]).await;
    let (share, warnings) = said(&ledger, job).await;
    assert_eq!(share, 0.0);
    assert!(
        warnings[0].starts_with("2 of the 2 shards to be audited (a share of 0.5) were not"),
        "{warnings:?}"
    );
    let audits = audits(&ledger, job).await;
    assert_eq!(
        audits[..3],
        [Some(AuditState::Waived), None, Some(AuditState::Waived)]
    );
}

#[tokio::test]
async fn another_device_audits_where_there_is_no_other_worker() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test", "test"]).await;
    let job = planned(&ledger, one, THREE, 1.0).await;
    for _ in 0..3 {
        bring(&ledger, one, "test", AttemptKind::Primary, 0).await;
    }
    assert!(ledger.claim(one).await.is_none(), "the device itself");
    let second = Claimant {
        device: "cpu:1",
        ..claimant_of(one, "test")
    };
    for _ in 0..2 {
        let (fence, shard) = shard_of(ledger.claim_one(&second).await.unwrap());
        ledger.commit(one, fence, &right(&shard)).await;
    }
    let two = worker(&ledger, "two", &["test"]).await;
    assert!(ledger.claim_one(&second).await.is_none(), "now there is");
    let (fence, shard) = take(&ledger, two, "test", AttemptKind::Audit).await;
    ledger.commit(two, fence, &right(&shard)).await;
    is_right(&ledger, job, THREE).await;
}

#[tokio::test]
async fn audits_are_waived_when_the_last_other_worker_goes() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, THREE, 1.0).await;
    finish(&ledger, one).await;
    let (fence, shard) = take(&ledger, two, "test", AttemptKind::Audit).await;
    ledger.store.reap(None).await.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Running, "it waits");
    // SIGTERM: what it holds is given back, then it stops.
    ledger.store.release_attempt(two, fence, 1).await.unwrap();
    ledger.store.stop_worker(two).await.unwrap();
    ledger.store.reap(None).await.unwrap();
    is_right(&ledger, job, THREE).await;
    assert_eq!(audits(&ledger, job).await, [Some(AuditState::Waived); 3]);
    let late = ledger.commit(two, fence, &right(&shard)).await;
    assert_eq!(late, CommitOutcome::Late);
}

#[tokio::test]
async fn an_audit_that_fails_says_nothing_of_the_shard() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 0.5).await;
    finish(&ledger, one).await;
    let (fence, _) = take(&ledger, two, "test", AttemptKind::Audit).await;
    let three = worker(&ledger, "three", &["test"]).await;
    ledger
        .store
        .fail_attempt(two, fence, &failure())
        .await
        .unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    assert!(ledger.claim(two).await.is_none(), "it has tried");
    let (fence, _) = take(&ledger, three, "test", AttemptKind::Audit).await;
    ledger
        .store
        .fail_attempt(three, fence, &failure())
        .await
        .unwrap();
    // Both have tried, and nobody else is there.
    is_right(&ledger, job, &[8, 8]).await;
    assert_eq!(audits(&ledger, job).await, [Some(AuditState::Waived), None]);
}

#[tokio::test]
async fn an_audit_that_kills_its_workers_is_given_up() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 0.5).await;
    finish(&ledger, one).await;
    let late = Utc::now() + LEASE + TimeDelta::hours(1);
    for loss in 1..=3 {
        take(&ledger, two, "test", AttemptKind::Audit).await;
        assert_eq!(ledger.store.reap(Some(late)).await.unwrap().attempts, 1);
        let running = ledger.state(job).await.state == JobState::Running;
        assert_eq!(running, loss < 3);
    }
    is_right(&ledger, job, &[8, 8]).await;
    assert_eq!(outcomes(&ledger, job, 0).await.len(), 4);
}

#[tokio::test]
async fn a_job_that_ends_otherwise_ends_its_audits() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    for fails in [false, true] {
        let job = planned(&ledger, one, &[8, 8, 8 - u64::from(fails)], 1.0).await;
        bring(&ledger, one, "test", AttemptKind::Primary, 0).await;
        bring(&ledger, one, "test", AttemptKind::Primary, 0).await;
        let (last, _) = take(&ledger, one, "test", AttemptKind::Primary).await;
        let (fence, shard) = take(&ledger, two, "test", AttemptKind::Audit).await;
        if fails {
            ledger
                .store
                .fail_attempt(one, last, &failure())
                .await
                .unwrap();
        } else {
            ledger.store.cancel_job(job).await.unwrap();
        }
        assert!(renew(&ledger, two, &[fence]).await.live.is_empty());
        let late = ledger.commit(two, fence, &off(&shard, 1)).await;
        assert_eq!(late, CommitOutcome::Late);
        let ended = outcomes(&ledger, job, shard.index).await;
        assert_eq!(
            ended[1],
            (AttemptKind::Audit, Some(AttemptOutcome::Cancelled))
        );
        ledger.store.reap(None).await.unwrap();
        assert!(ledger.claim(two).await.is_none());
    }
}

#[tokio::test]
async fn an_audit_that_does_not_fit_leaves_the_shard_as_it_counts() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 0.5).await;
    finish(&ledger, one).await;
    let (fence, taken) = take(&ledger, two, "test", AttemptKind::Audit).await;
    assert!(ledger.store.record_split(two, fence, 2).await.unwrap());
    assert_eq!(shard(&ledger, job, taken.index).await.split_depth, 0);
    // Bits are not promised between splits.
    let mut outcome = off(&taken, 1);
    outcome.split_depth = 2;
    ledger.commit(two, fence, &outcome).await;
    assert!(!ledger.store.record_split(two, fence, 3).await.unwrap());
    is_right(&ledger, job, &[8, 8]).await;
    assert_eq!(audits(&ledger, job).await, [Some(AuditState::Agreed), None]);
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert_eq!(result.split_shards, 0);
}
