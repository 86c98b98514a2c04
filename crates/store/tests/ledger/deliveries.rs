//! Deliveries are made with the end of their job, and claimed by one server at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use assay_api::{Delivery, DeliveryState, ErrorCode, JobId};
use assay_store::{
    AttemptFailure, DeliveryClaim, DeliveryOutcome, MetricsReader, NewWebhook, Next, SigningKey,
};
use chrono::{DateTime, TimeDelta, Utc};

use crate::support::{Ledger, request};

const SENDING: Duration = Duration::from_secs(30);

impl Ledger {
    /// A job that tells its end to this receiver.
    async fn told(&self, receiver: &str) -> JobId {
        let webhook = NewWebhook {
            url: &format!("https://{receiver}/hook"),
            receiver,
            key: &SigningKey::from(vec![7; 24]),
        };
        self.job_with(&request(&["a"]), Some(webhook)).await
    }

    /// Such a job that was cancelled.
    async fn ended(&self, receiver: &str) -> JobId {
        let job = self.told(receiver).await;
        self.store.cancel_job(job).await.unwrap();
        job
    }

    async fn take(&self, busy: &[&str], now: Option<DateTime<Utc>>) -> Vec<DeliveryClaim> {
        let busy: Vec<String> = busy.iter().map(|one| (*one).to_owned()).collect();
        let claims = self.store.claim_deliveries(8, &busy, SENDING, now).await;
        claims.unwrap()
    }

    async fn delivery(&self, job: JobId) -> Delivery {
        let mut deliveries = self.store.deliveries(job).await.unwrap();
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries.remove(0)
    }

    async fn end(&self, claim: &DeliveryClaim, next: Next, now: Option<DateTime<Utc>>) -> bool {
        let outcome = DeliveryOutcome {
            status: Some(if next == Next::Delivered { 204 } else { 500 }),
            error: (next != Next::Delivered).then(|| "made up".to_owned()),
            next,
        };
        let store = &self.store;
        store
            .end_delivery_attempt(claim, &outcome, now)
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn every_end_makes_one_delivery_and_nothing_else_does() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let succeeded = ledger.told("a.example:443").await;
    ledger.plan(worker, &[&[20, 20]]).await;
    assert_eq!(ledger.store.deliveries(succeeded).await.unwrap(), []);
    ledger.run_all(worker).await;

    let failed = ledger.told("a.example:443").await;
    let claim = ledger.claim(worker).await.unwrap();
    let failure = AttemptFailure {
        code: ErrorCode::ComputeFailed,
        detail: "made up".to_owned(),
        field: None,
        is_final: true,
        computed_tokens: 0,
    };
    let ended = ledger
        .store
        .fail_attempt(worker, claim.fence, &failure)
        .await;
    ended.unwrap();
    let cancelled = ledger.ended("a.example:443").await;
    ledger.store.cancel_job(cancelled).await.unwrap();
    let without = ledger.job(&["a"]).await;
    ledger.store.cancel_job(without).await.unwrap();

    for (job, kind) in [
        (succeeded, "job.succeeded"),
        (failed, "job.failed"),
        (cancelled, "job.cancelled"),
    ] {
        let delivery = ledger.delivery(job).await;
        assert_eq!(delivery.kind, kind);
        assert_eq!(delivery.state, DeliveryState::Pending);
        assert_eq!(delivery.url, "https://a.example:443/hook");
        assert!(delivery.next_attempt_at.is_some() && delivery.attempts.is_empty());
    }
    assert_eq!(ledger.store.deliveries(without).await.unwrap(), []);
    // Whoever reads the job sees where it is told, and not what with.
    let webhook = ledger.state(failed).await.webhook.unwrap();
    assert_eq!(webhook.secret, None);
}

#[tokio::test]
async fn a_claim_takes_one_for_each_receiver_that_is_free() {
    let ledger = Ledger::fresh().await;
    let first = ledger.ended("a.example:443").await;
    let second = ledger.ended("a.example:443").await;
    let other = ledger.ended("b.example:443").await;
    let jobs = |claims: &[DeliveryClaim]| -> BTreeSet<JobId> {
        claims.iter().map(|claim| claim.job).collect()
    };
    assert_eq!(
        jobs(&ledger.take(&["b.example:443"], None).await),
        [first].into()
    );
    // The one that is being sent is not due; whoever sends it says that its receiver is busy.
    assert_eq!(
        jobs(&ledger.take(&["a.example:443"], None).await),
        [other].into()
    );
    let claims = ledger.take(&[], None).await;
    assert_eq!(jobs(&claims), [second].into());
    assert_eq!((claims[0].attempt, claims[0].tries), (1, 1));
    assert_eq!(
        claims[0].webhook_id(),
        ledger.delivery(second).await.webhook_id
    );
    assert!(format!("{claims:?}").contains("key: SigningKey(..)"));
    assert_eq!(ledger.take(&[], None).await.len(), 0);
}

#[tokio::test]
async fn a_delivery_is_tried_until_it_arrives_or_has_failed() {
    let ledger = Ledger::fresh().await;
    let (good, bad) = (ledger.ended("a:1").await, ledger.ended("b:1").await);
    let later = ledger.store.clock().await.unwrap() + TimeDelta::minutes(1);
    for claim in ledger.take(&[], None).await {
        let next = Next::Again(Duration::from_mins(5));
        assert!(ledger.end(&claim, next, Some(later)).await);
    }
    let due = later + TimeDelta::minutes(5);
    let waits = ledger.delivery(good).await;
    assert_eq!(waits.next_attempt_at, Some(due));
    assert_eq!(waits.attempts[0].status, Some(500));
    let early = ledger.take(&[], Some(due - TimeDelta::seconds(1))).await;
    assert_eq!(early.len(), 0);
    for claim in ledger.take(&[], Some(due)).await {
        assert_eq!((claim.attempt, claim.tries), (2, 2));
        let sent = ledger.delivery(claim.job).await;
        assert_eq!(sent.next_attempt_at, None, "it is being sent");
        let next = if claim.job == good {
            Next::Delivered
        } else {
            Next::Failed
        };
        assert!(ledger.end(&claim, next, Some(due)).await);
        assert!(!ledger.end(&claim, next, Some(due)).await, "told twice");
    }
    for (job, state) in [
        (good, DeliveryState::Delivered),
        (bad, DeliveryState::Failed),
    ] {
        let delivery = ledger.delivery(job).await;
        assert_eq!((delivery.state, delivery.next_attempt_at), (state, None));
        assert_eq!(delivery.attempts.len(), 2);
    }
    let much_later = due + TimeDelta::days(1);
    assert_eq!(ledger.take(&[], Some(much_later)).await.len(), 0);

    // Asked for again both are sent once more, with all tries before them.
    for job in [good, bad] {
        assert!(
            ledger
                .store
                .retry_delivery(job, 1, Some(due))
                .await
                .unwrap()
        );
        assert!(
            !ledger
                .store
                .retry_delivery(job, 2, Some(due))
                .await
                .unwrap()
        );
    }
    let claims = ledger.take(&[], Some(due)).await;
    let tries: Vec<_> = claims.iter().map(|c| (c.attempt, c.tries)).collect();
    assert_eq!(tries, [(3, 1), (3, 1)]);
    // While it is being sent there is nothing to ask for.
    assert!(
        ledger
            .store
            .retry_delivery(good, 1, Some(due))
            .await
            .unwrap()
    );
    assert_eq!(ledger.take(&[], Some(due)).await.len(), 0);
}

#[tokio::test]
async fn what_a_server_leaves_behind_is_sent_by_another() {
    let ledger = Ledger::fresh().await;
    let job = ledger.ended("a:1").await;
    let now = ledger.store.clock().await.unwrap() + TimeDelta::minutes(1);
    let lost = ledger.take(&[], Some(now)).await.remove(0);
    let held = now + TimeDelta::seconds(29);
    assert_eq!(ledger.take(&[], Some(held)).await.len(), 0);
    let after = now + TimeDelta::seconds(30);
    let claim = ledger.take(&[], Some(after)).await.remove(0);
    assert_eq!((claim.attempt, claim.tries), (2, 2));
    // The first one was not dead, only slow: its word counts no more.
    assert!(!ledger.end(&lost, Next::Failed, Some(after)).await);
    assert!(ledger.end(&claim, Next::Delivered, Some(after)).await);
    let delivery = ledger.delivery(job).await;
    assert_eq!(delivery.state, DeliveryState::Delivered);
    let first = &delivery.attempts[0];
    assert!(
        first.error.as_ref().unwrap().contains("went away"),
        "{first:?}"
    );
    assert_eq!(first.finished_at.unwrap().timestamp(), after.timestamp());
    assert_eq!(delivery.attempts[1].status, Some(204));
}

/// Servers that claim side by side get each delivery once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_side_by_side_send_each_once() {
    const JOBS: usize = 24;
    let ledger = Ledger::fresh().await;
    for index in 0..JOBS {
        ledger.ended(&format!("r{}:1", index % 6)).await;
    }
    let server = async || {
        let mut claimed = Vec::new();
        loop {
            let claims = ledger.take(&[], None).await;
            for claim in &claims {
                assert!(ledger.end(claim, Next::Delivered, None).await);
                claimed.push(claim.job);
            }
            let mut reader = MetricsReader::new(ledger.store.clone());
            let metrics = reader.read(None).await.unwrap();
            if metrics.deliveries[1] == (DeliveryState::Delivered, JOBS as u64) {
                return claimed;
            }
        }
    };
    let (a, b, c) = tokio::join!(server(), server(), server());
    let all: Vec<JobId> = [a, b, c].concat();
    assert_eq!(all.len(), JOBS, "none twice");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), JOBS);
}

#[tokio::test]
async fn metrics_tell_what_is_pending_and_for_how_long() {
    let ledger = Ledger::fresh().await;
    let mut reader = MetricsReader::new(ledger.store.clone());
    let metrics = reader.read(None).await.unwrap();
    assert_eq!(
        metrics.deliveries,
        DeliveryState::ALL
            .iter()
            .map(|s| (*s, 0))
            .collect::<Vec<_>>()
    );
    assert_eq!(metrics.pending_delivery, Duration::ZERO);
    let job = ledger.ended("a:1").await;
    let later = ledger.delivery(job).await.created_at + TimeDelta::minutes(7);
    let metrics = reader.read(Some(later)).await.unwrap();
    assert_eq!(metrics.deliveries[0], (DeliveryState::Pending, 1));
    assert_eq!(metrics.pending_delivery, Duration::from_mins(7));
}
