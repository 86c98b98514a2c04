//! Shards: commits count once, errors and losses end a job where they must.

use assay_api::{AttemptOutcome, ErrorCode, JobState, ShardState};
use assay_store::{AttemptFailure, CommitOutcome, MAX_LOSSES};
use chrono::{TimeDelta, Utc};

use crate::support::{LEASE, Ledger, claimant, compute, expected, new_plan};

const LENGTHS: &[u64] = &[20, 0, 9, 1, 33, 5, 8];

fn failure(is_final: bool) -> AttemptFailure {
    AttemptFailure {
        code: ErrorCode::ComputeFailed,
        detail: "boom".to_owned(),
        field: None,
        is_final,
        computed_tokens: 3,
    }
}

#[tokio::test]
async fn a_job_runs_from_plan_to_result() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job(&["a", "b"]).await;
    ledger.plan(worker, &[LENGTHS, &[3, 4]]).await;
    let running = ledger.state(job).await;
    assert_eq!(running.state, JobState::Running);
    assert_eq!(running.progress.planned_tokens, Some(83));
    let early = ledger.store.result(job).await.unwrap().unwrap();
    assert!(!early.complete);
    assert_eq!(early.datasets[0].nll, None);
    assert!(
        ledger
            .store
            .documents(job, 0, 0, 10)
            .await
            .unwrap()
            .is_empty()
    );

    ledger.run_all(worker).await;
    let done = ledger.state(job).await;
    assert_eq!(
        (done.state, done.progress.scored_tokens),
        (JobState::Succeeded, 83)
    );
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert!(result.complete);
    assert_eq!(result.performance.counted_tokens, 83);
    assert_eq!(result.performance.computed_tokens, 83);
    assert_eq!(result.device_kinds, ["test"]);
    assert_eq!(result.datasets[0].unscored_documents, Some(1));
    let documents = ledger.store.documents(job, 0, 0, 100).await.unwrap();
    let sums: Vec<String> = documents.iter().map(|d| d.nll_exact.clone()).collect();
    assert_eq!(sums, expected(LENGTHS));
    let page = ledger.store.documents(job, 0, 2, 3).await.unwrap();
    assert_eq!(page, documents[2..5]);
    let shards = ledger.store.shards(job, 0, 100).await.unwrap();
    assert!(
        shards
            .iter()
            .all(|s| s.state == ShardState::Done && s.attempts.len() == 1)
    );
}

#[tokio::test]
async fn documents_page_over_the_edge_of_a_chunk() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let lengths = vec![1; 4100];
    let job = ledger.planned(worker, &lengths).await;
    ledger.run_all(worker).await;
    let page = ledger.store.documents(job, 0, 4090, 10).await.unwrap();
    assert_eq!(
        page.iter().map(|d| d.index).collect::<Vec<_>>(),
        (4090..4100).collect::<Vec<_>>()
    );
    assert_eq!(page[9].nll_exact, expected(&lengths)[4099]);
    assert!(
        ledger
            .store
            .documents(job, 0, 4100, 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        ledger
            .store
            .documents(job, 0, u64::MAX, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_shard_counts_once_whoever_brings_it() {
    let ledger = Ledger::fresh().await;
    let (slow, fast) = (ledger.worker("slow").await, ledger.worker("fast").await);
    let job = ledger.planned(slow, LENGTHS).await;
    let (lost, shard) = ledger.claim_shard(slow).await;
    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    assert_eq!(ledger.store.reap(Some(late)).await.unwrap().attempts, 1);
    let (fence, again) = ledger.claim_shard(fast).await;
    assert_eq!(again.index, shard.index);
    assert!(fence > lost);

    let commit = async |worker, fence| ledger.commit(worker, fence, &compute(&shard)).await;
    assert_eq!(commit(slow, lost).await, CommitOutcome::Late);
    assert_eq!(
        commit(fast, lost).await,
        CommitOutcome::Late,
        "another worker's fence"
    );
    assert_eq!(commit(fast, fence).await, CommitOutcome::Counted);
    assert_eq!(
        commit(fast, fence).await,
        CommitOutcome::Counted,
        "its answer may have been lost"
    );
    assert_eq!(commit(slow, lost).await, CommitOutcome::Late);
    assert_eq!(
        commit(slow, i64::MAX).await,
        CommitOutcome::Late,
        "no such fence"
    );

    let row = &ledger.store.shards(job, shard.index, 1).await.unwrap()[0];
    let outcomes: Vec<_> = row.attempts.iter().map(|a| (a.outcome, a.late)).collect();
    assert_eq!(
        outcomes,
        [
            (Some(AttemptOutcome::Lost), true),
            (Some(AttemptOutcome::Committed), false)
        ]
    );
    assert_eq!(
        ledger.state(job).await.progress.scored_tokens,
        row.scored_tokens
    );
    ledger.run_all(fast).await;
    let result = ledger.store.result(job).await.unwrap().unwrap();
    let total: u64 = LENGTHS.iter().sum();
    assert_eq!(result.performance.counted_tokens, total);
    assert_eq!(
        result.performance.computed_tokens,
        total + row.scored_tokens
    );
}

#[tokio::test]
async fn a_lease_that_ran_out_unnoticed_still_counts() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    ledger.planned(worker, LENGTHS).await;
    let long_ago = Utc::now() - TimeDelta::hours(1);
    let claims = ledger.store.claim(&claimant(worker), Some(long_ago)).await;
    let claim = claims.unwrap().remove(0);
    let assay_store::Work::Shard(shard) = claim.work else {
        panic!()
    };
    let outcome = ledger.commit(worker, claim.fence, &compute(&shard)).await;
    assert_eq!(outcome, CommitOutcome::Counted);
    assert_eq!(ledger.store.reap(None).await.unwrap().attempts, 0);
}

#[tokio::test]
async fn an_error_moves_to_another_worker_and_the_second_fails_the_job() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    let job = ledger.planned(one, LENGTHS).await;
    let (fence, shard) = ledger.claim_shard(one).await;
    ledger
        .store
        .fail_attempt(one, fence, &failure(false))
        .await
        .unwrap();
    ledger
        .store
        .fail_attempt(one, fence, &failure(false))
        .await
        .unwrap();
    assert_eq!(
        ledger.state(job).await.state,
        JobState::Running,
        "told twice, counted once"
    );
    let (_, other) = ledger.claim_shard(one).await;
    assert_ne!(
        other.index, shard.index,
        "worker two is live and has not tried"
    );
    let (fence, again) = ledger.claim_shard(two).await;
    assert_eq!(again.index, shard.index);
    ledger
        .store
        .fail_attempt(two, fence, &failure(false))
        .await
        .unwrap();

    let failed = ledger.state(job).await;
    assert_eq!(failed.state, JobState::Failed);
    let error = failed.error.unwrap();
    assert_eq!(
        (error.code, error.detail.as_str()),
        (ErrorCode::ComputeFailed, "boom")
    );
    assert_eq!(error.shard.unwrap().worker, "two");
    assert!(ledger.claim(one).await.is_none());
}

#[tokio::test]
async fn a_lone_worker_gets_its_own_failure_again() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    for expected in [JobState::Running, JobState::Failed] {
        let (fence, shard) = ledger.claim_shard(worker).await;
        assert_eq!(shard.index, 0);
        ledger
            .store
            .fail_attempt(worker, fence, &failure(false))
            .await
            .unwrap();
        assert_eq!(ledger.state(job).await.state, expected);
    }
}

#[tokio::test]
async fn a_final_error_fails_the_job_at_once() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    let (fence, _) = ledger.claim_shard(worker).await;
    let (other, _) = ledger.claim_shard(worker).await;
    ledger
        .store
        .fail_attempt(worker, fence, &failure(true))
        .await
        .unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Failed);
    assert!(
        ledger
            .store
            .renew(worker, &[(other, None)], LEASE, None)
            .await
            .unwrap()
            .live
            .is_empty()
    );
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert!(!result.complete);
    assert_eq!(result.performance.computed_tokens, 3);
}

#[tokio::test]
async fn an_error_that_quotes_anything_can_be_stored() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    for (detail, stored) in [
        ("field `a\0b`", "field `a\\0b`".to_owned()),
        (&*"\u{fc}".repeat(2000), "\u{fc}".repeat(2000)),
        (&*"\u{fc}".repeat(2001), "\u{fc}".repeat(2000) + " [..]"),
    ] {
        let job = ledger.job(&["a"]).await;
        let fence = ledger.claim(worker).await.unwrap().fence;
        let failure = AttemptFailure {
            detail: detail.to_owned(),
            ..failure(true)
        };
        ledger
            .store
            .fail_attempt(worker, fence, &failure)
            .await
            .unwrap();
        let error = ledger.state(job).await.error.unwrap();
        assert_eq!(error.detail, stored);
    }
}

#[tokio::test]
async fn twenty_losses_fail_the_job_and_suspect_memory() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    for loss in 1..=MAX_LOSSES {
        assert_eq!(ledger.state(job).await.state, JobState::Running);
        let (_, shard) = ledger.claim_shard(worker).await;
        assert_eq!(shard.index, 0);
        assert_eq!(ledger.store.reap(Some(late)).await.unwrap().attempts, 1);
        let warnings = ledger.store.result(job).await.unwrap().unwrap().warnings;
        assert_eq!(
            warnings.iter().any(|w| w.contains("out of memory")),
            loss >= 3
        );
    }
    let error = ledger.state(job).await.error.unwrap();
    assert_eq!(error.code, ErrorCode::ShardLost);
    assert!(
        error.detail.contains("run out of memory"),
        "{}",
        error.detail
    );
}

#[tokio::test]
async fn giving_back_costs_nothing() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    for _ in 0..=MAX_LOSSES {
        let (fence, shard) = ledger.claim_shard(worker).await;
        assert_eq!(shard.index, 0);
        let released = ledger.store.release_attempt(worker, fence, 0).await;
        released.unwrap();
    }
    ledger.run_all(worker).await;
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
}

#[tokio::test]
async fn a_result_that_is_not_the_plans_fails_the_job() {
    for change in ["digest", "count"] {
        let ledger = Ledger::fresh().await;
        let worker = ledger.worker("w").await;
        let job = ledger.planned(worker, LENGTHS).await;
        let (fence, shard) = ledger.claim_shard(worker).await;
        let mut outcome = compute(&shard);
        match change {
            "digest" => outcome.spans_digest.push('0'),
            _ => outcome.sums[0].scored += 1,
        }
        let committed = ledger.commit(worker, fence, &outcome).await;
        assert_eq!(committed, CommitOutcome::Disagrees);
        let failed = ledger.state(job).await;
        assert_eq!(
            failed.error.unwrap().code,
            ErrorCode::CountsDisagree,
            "{change}"
        );
        assert_eq!(failed.progress.scored_tokens, 0);
    }
}

#[tokio::test]
async fn planning_is_leased_and_fenced_like_a_shard() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    let job = ledger.job(&["a"]).await;
    let lost = ledger.claim(one).await.unwrap().fence;
    assert_eq!(ledger.state(job).await.state, JobState::Planning);
    assert!(ledger.claim(two).await.is_none(), "one planner at a time");
    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    ledger.store.reap(Some(late)).await.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Queued);
    let fence = ledger.claim(two).await.unwrap().fence;
    assert!(
        !ledger
            .store
            .commit_plan(one, lost, &new_plan(&[LENGTHS]))
            .await
            .unwrap()
    );
    assert!(
        ledger
            .store
            .commit_plan(two, fence, &new_plan(&[LENGTHS]))
            .await
            .unwrap()
    );
    assert!(
        ledger
            .store
            .commit_plan(two, fence, &new_plan(&[LENGTHS]))
            .await
            .unwrap()
    );
    let shards = ledger.store.shards(job, 0, 100).await.unwrap().len() as u64;
    assert_eq!(ledger.state(job).await.progress.datasets[0].shards, shards);
}

#[tokio::test]
async fn planning_errors_fail_the_job_and_name_the_field() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job(&["a"]).await;
    let fence = ledger.claim(worker).await.unwrap().fence;
    let failure = AttemptFailure {
        field: Some("datasets[0]".to_owned()),
        ..failure(true)
    };
    ledger
        .store
        .fail_attempt(worker, fence, &failure)
        .await
        .unwrap();
    let error = ledger.state(job).await.error.unwrap();
    assert_eq!(error.field.as_deref(), Some("datasets[0]"));
    assert_eq!(error.shard, None);
}
