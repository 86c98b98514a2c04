//! Jobs that wait or run for too long end, and those that nobody can take up say so.

use assay_api::{Deadlines, ErrorCode, JobId, JobState, Waiting, WaitingCode};
use assay_store::{CommitOutcome, NewWorker};
use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use crate::support::{LEASE, Ledger, compute, request};

impl Ledger {
    async fn limited(&self, queue_seconds: Option<u32>, run_seconds: Option<u32>) -> JobId {
        let mut wanted = request(&["a"]);
        wanted.deadlines = Some(Deadlines {
            queue_seconds,
            run_seconds,
        });
        self.job_of(&wanted).await
    }

    async fn reap_at(&self, now: DateTime<Utc>) {
        self.store.reap(Some(now)).await.unwrap();
    }

    /// The state of a job, and the code and the field of its error.
    async fn end_of(&self, job: JobId) -> (JobState, Option<(ErrorCode, String)>) {
        let job = self.state(job).await;
        let error = job.error.map(|error| (error.code, error.field.unwrap()));
        (job.state, error)
    }
}

#[tokio::test]
async fn a_job_that_nobody_takes_up_in_time_fails() {
    let ledger = Ledger::fresh().await;
    let (short, long) = (
        ledger.limited(Some(60), None).await,
        ledger.limited(Some(600), None).await,
    );
    let unlimited = ledger.job(&["a"]).await;
    let posted = ledger.state(short).await.created_at;
    ledger.reap_at(posted + TimeDelta::seconds(59)).await;
    assert_eq!(ledger.end_of(short).await, (JobState::Queued, None));
    ledger.reap_at(posted + TimeDelta::seconds(60)).await;
    let error = (
        ErrorCode::QueueDeadlineExceeded,
        "deadlines.queue_seconds".to_owned(),
    );
    assert_eq!(ledger.end_of(short).await, (JobState::Failed, Some(error)));
    assert_eq!(ledger.end_of(long).await, (JobState::Queued, None));

    // Whoever is taken up waits no more, whatever becomes of the planning.
    let worker = ledger.worker("w").await;
    let claim = ledger.claim(worker).await.unwrap();
    assert_eq!(claim.job, long);
    let released = ledger.store.release_attempt(worker, claim.fence, 0).await;
    released.unwrap();
    ledger.reap_at(posted + TimeDelta::days(1)).await;
    assert_eq!(ledger.end_of(long).await, (JobState::Queued, None));
    assert_eq!(ledger.end_of(unlimited).await, (JobState::Queued, None));
    let deadlines = ledger.state(long).await.deadlines.unwrap();
    assert_eq!(deadlines.queue_seconds, Some(600));
    assert_eq!(ledger.state(unlimited).await.deadlines, None);
}

#[tokio::test]
async fn a_job_that_runs_for_too_long_fails_and_its_shards_stop() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.limited(None, Some(60)).await;
    let posted = ledger.state(job).await.created_at;
    ledger.reap_at(posted + TimeDelta::days(1)).await;
    assert_eq!(ledger.end_of(job).await, (JobState::Queued, None));
    ledger.plan(worker, &[&[20, 20]]).await;
    let (done, shard) = ledger.claim_shard(worker).await;
    ledger.commit(worker, done, &compute(&shard)).await;
    let (running, shard) = ledger.claim_shard(worker).await;
    let started = ledger.state(job).await.started_at.unwrap();

    // Meanwhile the lease is renewed.
    let now = started + TimeDelta::seconds(60);
    let just = now - TimeDelta::milliseconds(1);
    let attempts = [(running, None)];
    let renew = async |now| {
        let renewed = ledger
            .store
            .renew(worker, &attempts, LEASE, Some(now))
            .await;
        renewed.unwrap().live
    };
    assert_eq!(renew(just).await, [running]);
    ledger.reap_at(just).await;
    assert_eq!(ledger.end_of(job).await, (JobState::Running, None));
    ledger.reap_at(now).await;
    let error = (
        ErrorCode::RunDeadlineExceeded,
        "deadlines.run_seconds".to_owned(),
    );
    assert_eq!(ledger.end_of(job).await, (JobState::Failed, Some(error)));
    // The device is told to stop, and what it brings all the same is late.
    assert_eq!(renew(now).await, [0_i64; 0]);
    let late = ledger.commit(worker, running, &compute(&shard)).await;
    assert_eq!(late, CommitOutcome::Late);
    assert!(ledger.claim(worker).await.is_none());
    // Ended is ended.
    ledger.reap_at(now + TimeDelta::days(1)).await;
}

#[tokio::test]
async fn a_job_says_that_there_is_nobody_for_it() {
    let ledger = Ledger::fresh().await;
    let job = ledger.job(&["a"]).await;
    let waits = async |job| ledger.state(job).await.waiting.map(|waiting| waiting.code);
    let waiting = ledger.state(job).await.waiting.unwrap();
    assert_eq!(waiting, Waiting::from(WaitingCode::NoWorker));
    assert!(waiting.detail.contains("assay-worker run"));

    // One that was here once is none.
    let gone = NewWorker {
        id: Uuid::now_v7(),
        name: "gone",
        version: "test",
        devices: &[],
    };
    let before = Utc::now() - TimeDelta::minutes(1);
    let registered = ledger
        .store
        .register_worker(&gone, LEASE, Some(before))
        .await;
    registered.unwrap();
    assert_eq!(waits(job).await, Some(WaitingCode::NoWorker));
    let worker = ledger.worker("w").await;
    assert_eq!(waits(job).await, None);
    let mut connection = ledger.database.connect().await;
    sqlx::query("update workers set out_of_service_at = now(), out_of_service_reason = 'odd'")
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(waits(job).await, Some(WaitingCode::NoWorkerInService));
    ledger.store.stop_worker(worker).await.unwrap();
    assert_eq!(waits(job).await, Some(WaitingCode::NoWorker));
    // What has ended waits for nothing.
    ledger.store.cancel_job(job).await.unwrap();
    assert_eq!(waits(job).await, None);
}
