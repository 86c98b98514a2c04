//! Leases: renewed by their worker alone, ended by the database's clock.

use assay_api::WorkerState;
use assay_store::StoreError;
use chrono::{TimeDelta, Utc};

use crate::support::{LEASE, Ledger};

#[tokio::test]
async fn renewals_hold_and_silence_loses() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    ledger.planned(one, &[40, 40]).await;
    let (kept, _) = ledger.claim_shard(one).await;
    let (hung, _) = ledger.claim_shard(one).await;
    let (others, _) = ledger.claim_shard(two).await;

    let soon = Utc::now() + TimeDelta::seconds(10);
    let asked = [(kept, None), (others, None)];
    let live = ledger
        .store
        .renew(one, &asked, LEASE, Some(soon))
        .await
        .unwrap()
        .live;
    assert_eq!(
        live,
        [kept, hung],
        "live are all of the worker's own, renewed or not"
    );
    let later = Utc::now() + TimeDelta::seconds(20);
    assert_eq!(
        ledger.store.reap(Some(later)).await.unwrap().attempts,
        2,
        "hung and two's"
    );
    let live = ledger
        .store
        .renew(one, &[(kept, None), (hung, None)], LEASE, Some(later))
        .await
        .unwrap()
        .live;
    assert_eq!(live, [kept], "what is lost stays lost");
}

#[tokio::test]
async fn workers_are_live_stopped_or_lost() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    let long_ago = Utc::now() - TimeDelta::hours(1);
    ledger
        .store
        .renew(one, &[], LEASE, Some(long_ago))
        .await
        .unwrap();
    ledger.store.stop_worker(two).await.unwrap();
    let three = ledger.worker("three").await;
    let workers = ledger.store.workers(None, 10).await.unwrap();
    let states: Vec<_> = workers.iter().map(|w| (w.id, w.state)).collect();
    assert_eq!(
        states,
        [
            (three, WorkerState::Live),
            (two, WorkerState::Stopped),
            (one, WorkerState::Lost)
        ]
    );
    assert_eq!(ledger.store.live_workers().await.unwrap(), 1);
    assert_eq!(ledger.store.workers(Some(two), 10).await.unwrap().len(), 1);

    ledger.store.renew(one, &[], LEASE, None).await.unwrap();
    assert_eq!(
        ledger.store.live_workers().await.unwrap(),
        2,
        "a worker that wakes up is live"
    );
    let stranger = ledger
        .store
        .renew(uuid::Uuid::now_v7(), &[], LEASE, None)
        .await;
    assert!(matches!(stranger, Err(StoreError::UnknownWorker(_))));
}
