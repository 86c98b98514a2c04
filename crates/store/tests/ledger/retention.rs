//! Old jobs are deleted, and nothing that others need with them.

use std::time::Duration;

use assay_api::{Gate, JobId};
use assay_store::{Creation, NewWebhook, SigningKey};
use chrono::{DateTime, TimeDelta, Utc};

use crate::support::{Ledger, request};

const DAY: Duration = Duration::from_hours(24);

impl Ledger {
    async fn remove_at(&self, now: DateTime<Utc>) -> u64 {
        self.store.remove_old_jobs(DAY, Some(now)).await.unwrap()
    }

    async fn is_there(&self, job: JobId) -> bool {
        self.store.job(job).await.unwrap().is_some()
    }

    /// Rows of all tables that belong to jobs.
    async fn rows(&self) -> i64 {
        let mut connection = self.database.connect().await;
        sqlx::query_scalar(
            "select (select count(*) from jobs) + (select count(*) from datasets)
                  + (select count(*) from shards) + (select count(*) from attempts)
                  + (select count(*) from document_chunks) + (select count(*) from token_spans)
                  + (select count(*) from job_events) + (select count(*) from webhooks)
                  + (select count(*) from deliveries) + (select count(*) from delivery_attempts)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap()
    }
}

#[tokio::test]
async fn what_ended_long_ago_goes_with_all_that_belongs_to_it() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let key = SigningKey::from(vec![7; 24]);
    let webhook = NewWebhook {
        url: "https://a.example/",
        receiver: "a.example:443",
        key: &key,
    };
    let old = ledger.job_with(&request(&["a"]), Some(webhook)).await;
    ledger.plan(worker, &[&[20, 20]]).await;
    ledger.run_all(worker).await;
    let claims = ledger.store.claim_deliveries(1, &[], DAY, None).await;
    assert_eq!(claims.unwrap().len(), 1);
    let ended = ledger.state(old).await.finished_at.unwrap();
    let day = TimeDelta::from_std(DAY).unwrap();
    assert_eq!(
        ledger.remove_at(ended + day).await,
        0,
        "a day and no longer"
    );
    let live = ledger.job(&["b"]).await;
    let rows = ledger.rows().await;
    assert!(rows > 10, "{rows}");
    assert_eq!(ledger.remove_at(ended + day * 2).await, 1);
    assert!(!ledger.is_there(old).await && ledger.is_there(live).await);
    // The job that has not ended, its row and its first event.
    assert_eq!(ledger.rows().await, 3);
    assert_eq!(ledger.remove_at(ended + day * 2).await, 0);
    // Whoever still computes for it is late.
    ledger.store.release_attempt(worker, 1, 5).await.unwrap();
}

#[tokio::test]
async fn what_others_refer_to_stays_as_long_as_they_do() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let source = ledger.planned(worker, &[20, 20]).await;
    ledger.run_all(worker).await;
    // Takes its numbers from the first.
    let taker = ledger.planned(worker, &[20, 20]).await;
    assert_eq!(ledger.state(taker).await.progress.datasets[0].shards, 0);
    // Is held against the second, and lives.
    let gate = Gate {
        baseline: taker,
        max_increase: 0.1,
        datasets: Vec::new(),
    };
    let Creation::Created(judged) = ledger.create_gated(&request(&["c"]), &gate).await else {
        panic!()
    };
    let later = Utc::now() + TimeDelta::days(3);
    assert_eq!(ledger.remove_at(later).await, 0);
    ledger.store.cancel_job(judged.id).await.unwrap();
    // From the last one to the first, a round each as a round sees what was before it.
    let mut removed = Vec::new();
    loop {
        let jobs = ledger.remove_at(later).await;
        if jobs == 0 {
            break;
        }
        removed.push(jobs);
    }
    assert_eq!(removed, [1, 1, 1]);
    assert!(!ledger.is_there(source).await);
}

#[tokio::test]
async fn many_go_in_small_parts() {
    let ledger = Ledger::fresh().await;
    for _ in 0..25 {
        let job = ledger.job(&["a"]).await;
        ledger.store.cancel_job(job).await.unwrap();
    }
    let later = Utc::now() + TimeDelta::days(3);
    let both = tokio::join!(ledger.remove_at(later), ledger.remove_at(later));
    assert_eq!(both.0 + both.1 + ledger.remove_at(later).await, 25);
    assert_eq!(ledger.rows().await, 0);
}
