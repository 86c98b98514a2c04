//! Two workers disagree: a third decides, or nobody can.

use assay_api::AttemptKind::{Audit, Primary};
use assay_api::AttemptOutcome::{Committed, Revoked};
use assay_api::{AuditState, ErrorCode, JobState, WorkerState};
use chrono::{TimeDelta, Utc};

use super::{
    THREE, audits, bring, error, finish, is_right, outcomes, planned, renew, said, shard, take,
    worker,
};
use crate::support::{LEASE, Ledger};

/// Eight tokens of document n come to 8n + 2.2 nat here, which is 9e9 units for the first: the one
/// is below a hundred-thousandth of any sum, the other above.
const WITHIN: i64 = 10_000;
const BEYOND_FLOAT32: i64 = 1_000_000_000;

#[tokio::test]
async fn the_one_who_counted_was_wrong() {
    let ledger = Ledger::fresh().await;
    let wrong = worker(&ledger, "wrong", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, wrong, THREE, 1.0).await;
    // Wrong in one shard alone; everything it counted is in doubt.
    bring(&ledger, wrong, "test", Primary, 0).await;
    bring(&ledger, wrong, "test", Primary, 1).await;
    bring(&ledger, two, "test", Primary, 0).await;
    assert_eq!(bring(&ledger, three, "test", Audit, 0).await, 0);
    assert_eq!(bring(&ledger, three, "test", Audit, 0).await, 1);
    assert_eq!(
        audits(&ledger, job).await,
        [
            Some(AuditState::Agreed),
            Some(AuditState::Disputed),
            Some(AuditState::Wanted)
        ]
    );
    assert_eq!(ledger.state(job).await.progress.scored_tokens, 24);
    assert_eq!(bring(&ledger, two, "test", Audit, 0).await, 1);

    // Shard 0 was agreed on and stays; shard 1 is queued again, to be audited again.
    assert_eq!(ledger.state(job).await.progress.scored_tokens, 16);
    assert_eq!(
        outcomes(&ledger, job, 1).await,
        [
            (Primary, Some(Revoked)),
            (Audit, Some(Committed)),
            (Audit, Some(Committed))
        ]
    );
    assert_eq!(
        audits(&ledger, job).await,
        [
            Some(AuditState::Agreed),
            Some(AuditState::Wanted),
            Some(AuditState::Wanted)
        ]
    );
    finish(&ledger, three).await;
    assert_eq!(
        ledger.state(job).await.state,
        JobState::Running,
        "who audits"
    );
    finish(&ledger, two).await;
    is_right(&ledger, job, THREE).await;
    assert_eq!(
        outcomes(&ledger, job, 1).await[3..],
        [(Primary, Some(Committed)), (Audit, Some(Committed))]
    );

    let workers = ledger.store.workers(None, 10).await.unwrap();
    let row = workers.iter().find(|w| w.name == "wrong").unwrap();
    assert_eq!(row.state, WorkerState::OutOfService);
    let reason = row.out_of_service.as_deref().unwrap();
    for part in [
        &*job.to_string(),
        "shard 1",
        "two (cpu:0, test)",
        "three (cpu:0, test)",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(
        workers
            .iter()
            .all(|w| w.name == "wrong" || w.out_of_service.is_none())
    );
    let (share, warnings) = said(&ledger, job).await;
    assert!((share - 1.0).abs() < 1e-12);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("the worker wrong was taken out of service: audit of job"));
}

#[tokio::test]
async fn the_auditor_was_wrong() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let wrong = worker(&ledger, "wrong", &["test"]).await;
    let job = planned(&ledger, one, THREE, 1.0).await;
    bring(&ledger, one, "test", Primary, 0).await;
    bring(&ledger, one, "test", Primary, 0).await;
    // What it counted itself goes back too, audited by nobody.
    bring(&ledger, wrong, "test", Primary, 0).await;
    let three = worker(&ledger, "three", &["test"]).await;
    assert_eq!(bring(&ledger, wrong, "test", Audit, -1).await, 0);
    assert_eq!(bring(&ledger, wrong, "test", Audit, -1).await, 1);
    assert_eq!(bring(&ledger, three, "test", Audit, 0).await, 0);
    assert_eq!(
        audits(&ledger, job).await,
        [
            Some(AuditState::Agreed),
            Some(AuditState::Wanted),
            Some(AuditState::Wanted)
        ]
    );
    assert_eq!(
        outcomes(&ledger, job, 1).await,
        [(Primary, Some(Committed)), (Audit, Some(Revoked))]
    );
    assert_eq!(outcomes(&ledger, job, 2).await, [(Primary, Some(Revoked))]);
    assert!(ledger.claim(wrong).await.is_none());
    finish(&ledger, three).await;
    finish(&ledger, one).await;
    is_right(&ledger, job, THREE).await;
    assert!(said(&ledger, job).await.1[0].starts_with("the worker wrong"));
}

#[tokio::test]
async fn two_workers_alone_cannot_say_who_is_wrong() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, THREE, 1.0).await;
    bring(&ledger, one, "test", Primary, 0).await;
    let (running, _) = take(&ledger, one, "test", Primary).await;
    bring(&ledger, two, "test", Primary, 0).await;
    bring(&ledger, two, "test", Audit, 1).await;
    let error = error(&ledger, job).await;
    assert_eq!(error.code, ErrorCode::AuditDisagrees);
    for part in [
        "one (cpu:0, test) and two (cpu:0, test)",
        "different results for shard 0",
        "cluster 0 is the first that differs",
        "No other worker",
    ] {
        assert!(error.detail.contains(part), "{}", error.detail);
    }
    assert_eq!(error.shard.unwrap().shard, 0);
    assert!(renew(&ledger, one, &[running]).await.live.is_empty());
    let workers = ledger.store.workers(None, 10).await.unwrap();
    assert!(
        workers.iter().all(|w| w.out_of_service.is_none()),
        "nobody knows"
    );
    // Such a job lends nothing, and says so.
    assert_eq!(ledger.state(job).await.progress.scored_tokens, 16);
}

#[tokio::test]
async fn a_third_worker_that_goes_decides_nothing() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, one, THREE, 1.0).await;
    bring(&ledger, one, "test", Primary, 0).await;
    for _ in 0..2 {
        bring(&ledger, three, "test", Primary, 0).await;
    }
    bring(&ledger, two, "test", Audit, 1).await;
    ledger.store.reap(None).await.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    let (fence, _) = take(&ledger, three, "test", Audit).await;
    ledger.store.stop_worker(three).await.unwrap();
    ledger.store.reap(None).await.unwrap();
    assert_eq!(
        ledger.state(job).await.state,
        JobState::Running,
        "it is at it"
    );
    ledger.store.release_attempt(three, fence, 0).await.unwrap();
    let error = error(&ledger, job).await;
    assert_eq!(error.code, ErrorCode::AuditDisagrees);
    assert!(
        error.detail.contains("one (cpu:0, test) and two"),
        "{}",
        error.detail
    );
}

/// After an outage of the database every worker is silent, until its next renewal.
#[tokio::test]
async fn a_third_worker_that_is_silent_is_waited_for() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 1.0).await;
    for _ in 0..2 {
        bring(&ledger, one, "test", Primary, 0).await;
    }
    let silent_for = async |worker, seconds: f64| {
        sqlx::query(
            "update workers set lease_until = now() - make_interval(secs => $2) where id = $1",
        )
        .bind(worker)
        .bind(seconds)
        .execute(&mut ledger.database.connect().await)
        .await
        .unwrap();
    };
    silent_for(three, 30.0).await;
    bring(&ledger, two, "test", Audit, 1).await;
    ledger.store.reap(None).await.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    silent_for(three, 90.0).await;
    ledger.store.reap(None).await.unwrap();
    let error = error(&ledger, job).await;
    assert_eq!(error.code, ErrorCode::AuditDisagrees);
}

#[tokio::test]
async fn a_dispute_that_kills_its_workers_is_given_up() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 0.5).await;
    for _ in 0..2 {
        bring(&ledger, one, "test", Primary, 0).await;
    }
    bring(&ledger, two, "test", Audit, 1).await;
    let late = Utc::now() + LEASE + TimeDelta::hours(1);
    for loss in 1..=3 {
        take(&ledger, three, "test", Audit).await;
        ledger.store.reap(Some(late)).await.unwrap();
        let running = ledger.state(job).await.state == JobState::Running;
        assert_eq!(running, loss < 3);
    }
    let error = error(&ledger, job).await;
    assert_eq!(error.code, ErrorCode::AuditDisagrees);
    assert!(error.detail.contains("were lost"), "{}", error.detail);
}

#[tokio::test]
async fn three_workers_with_three_results_fail_the_job() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 0.5).await;
    for _ in 0..2 {
        bring(&ledger, one, "test", Primary, 0).await;
    }
    bring(&ledger, two, "test", Audit, 1).await;
    bring(&ledger, three, "test", Audit, 2).await;
    let error = error(&ledger, job).await;
    assert_eq!(error.code, ErrorCode::AuditDisagrees);
    for name in ["one (cpu:0", "two (cpu:0", "three (cpu:0"] {
        assert!(error.detail.contains(name), "{}", error.detail);
    }
}

#[tokio::test]
async fn kinds_may_differ_within_the_tolerance() {
    for (units, agree) in [(WITHIN, true), (-WITHIN, true), (BEYOND_FLOAT32, false)] {
        let ledger = Ledger::fresh().await;
        let one = worker(&ledger, "one", &["test"]).await;
        let two = worker(&ledger, "two", &["other"]).await;
        let job = planned(&ledger, one, &[8, 8], 0.5).await;
        for _ in 0..2 {
            bring(&ledger, one, "test", Primary, 0).await;
        }
        bring(&ledger, two, "other", Audit, units).await;
        if agree {
            // What was counted counts, not the mean nor the audit.
            is_right(&ledger, job, &[8, 8]).await;
            continue;
        }
        let error = error(&ledger, job).await;
        assert_eq!(error.code, ErrorCode::AuditDisagrees);
        for part in [
            "one (cpu:0, test) and two (cpu:0, other)",
            "apart, relatively",
        ] {
            assert!(error.detail.contains(part), "{}", error.detail);
        }
    }
}

/// Between two workers of one kind it is a matter of bits, which no other kind has.
#[tokio::test]
async fn a_worker_of_another_kind_does_not_decide_about_bits() {
    for fourth_comes in [false, true] {
        let ledger = Ledger::fresh().await;
        let wrong = worker(&ledger, "wrong", &["test"]).await;
        let two = worker(&ledger, "two", &["test"]).await;
        let three = worker(&ledger, "three", &["other"]).await;
        let job = planned(&ledger, wrong, &[8, 8], 0.5).await;
        for _ in 0..2 {
            bring(&ledger, wrong, "test", Primary, 1).await;
        }
        bring(&ledger, two, "test", Audit, 0).await;
        let four = if fourth_comes {
            Some(worker(&ledger, "four", &["test"]).await)
        } else {
            None
        };
        bring(&ledger, three, "other", Audit, WITHIN).await;
        let Some(four) = four else {
            let error = error(&ledger, job).await;
            assert_eq!(error.code, ErrorCode::AuditDisagrees);
            assert!(
                error.detail.contains("wrong (cpu:0, test) and two"),
                "{}",
                error.detail
            );
            continue;
        };
        assert_eq!(
            shard(&ledger, job, 0).await.audit,
            Some(AuditState::Disputed)
        );
        bring(&ledger, four, "test", Audit, 0).await;
        assert!(ledger.claim(wrong).await.is_none());
        finish(&ledger, two).await;
        finish(&ledger, four).await;
        is_right(&ledger, job, &[8, 8]).await;
    }
}

/// The worker between the two of a dispute goes out of service for another one: what it said does
/// not count, and the dispute goes on.
#[tokio::test]
async fn a_dispute_outlives_an_undecided_auditor() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let between = worker(&ledger, "between", &["other"]).await;
    let four = worker(&ledger, "four", &["test"]).await;
    let job = planned(&ledger, one, &[8, 8], 1.0).await;
    for _ in 0..2 {
        bring(&ledger, one, "test", Primary, 0).await;
    }
    assert_eq!(bring(&ledger, two, "test", Audit, 1).await, 0);
    assert_eq!(bring(&ledger, between, "other", Audit, WITHIN).await, 0);
    assert_eq!(
        bring(&ledger, between, "other", Audit, BEYOND_FLOAT32).await,
        1
    );
    assert_eq!(audits(&ledger, job).await, [Some(AuditState::Disputed); 2]);
    assert_eq!(bring(&ledger, two, "test", Audit, 0).await, 1);
    assert!(
        ledger.claim(between).await.is_none(),
        "it is out of service"
    );
    assert_eq!(
        audits(&ledger, job).await,
        [Some(AuditState::Disputed), Some(AuditState::Agreed)]
    );
    assert_eq!(bring(&ledger, four, "test", Audit, 0).await, 0);
    is_right(&ledger, job, &[8, 8]).await;
    assert!(ledger.claim(two).await.is_none(), "it was off by one");
}
