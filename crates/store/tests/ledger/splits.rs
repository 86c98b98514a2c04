//! Splits: recorded under a live fence only, kept for whoever comes next.

use assay_api::ShardState;
use chrono::{TimeDelta, Utc};

use crate::support::{LEASE, Ledger, compute};

const LENGTHS: &[u64] = &[20, 9, 33];

#[tokio::test]
async fn a_split_holds_for_every_later_attempt() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    let job = ledger.planned(one, LENGTHS).await;
    let split = async |worker, fence, depth| {
        ledger
            .store
            .record_split(worker, fence, depth)
            .await
            .unwrap()
    };
    let (lost, shard) = ledger.claim_shard(one).await;
    assert_eq!(shard.split_depth, 0);
    assert!(split(one, lost, 1).await);
    assert!(split(one, lost, 3).await);
    assert!(split(one, lost, 2).await, "live, though nothing is raised");
    assert!(!split(two, lost, 4).await, "another worker's fence");
    assert!(!split(one, i64::MAX, 4).await, "no such fence");

    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    ledger.store.reap(Some(late)).await.unwrap();
    assert!(!split(one, lost, 5).await, "what is lost stays lost");
    let (fence, again) = ledger.claim_shard(two).await;
    assert_eq!((again.index, again.split_depth), (shard.index, 3));
    assert!(
        !split(one, lost, 5).await,
        "the shard is in other hands now"
    );
    let outcome = compute(&again);
    ledger.commit(two, fence, &outcome).await;
    assert!(!split(two, fence, 5).await, "committed");

    ledger.run_all(two).await;
    let shards = ledger.store.shards(job, 0, 100).await.unwrap();
    assert!(shards.iter().all(|s| s.state == ShardState::Done));
    let depths: Vec<u32> = shards.iter().map(|s| s.split_depth).collect();
    assert_eq!(depths[0], 3);
    assert!(depths[1..].iter().all(|depth| *depth == 0));
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert_eq!(result.split_shards, 1);
}

#[tokio::test]
async fn a_job_that_ended_splits_nothing() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    let (fence, _) = ledger.claim_shard(worker).await;
    ledger.store.cancel_job(job).await.unwrap();
    assert!(!ledger.store.record_split(worker, fence, 1).await.unwrap());
    // A planning has no shard to split.
    ledger.job(&["b"]).await;
    let fence = ledger.claim(worker).await.unwrap().fence;
    assert!(!ledger.store.record_split(worker, fence, 1).await.unwrap());
}

/// The reaper and the split want the same attempt: one of them comes first, and a split that was
/// answered with no has left nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_races_with_the_reaper() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    let mut depth = 0;
    for _ in 0..15 {
        let (fence, shard) = ledger.claim_shard(worker).await;
        assert_eq!((shard.index, shard.split_depth), (0, depth));
        let (reaped, split) = tokio::join!(
            ledger.store.reap(Some(late)),
            ledger.store.record_split(worker, fence, depth + 1),
        );
        assert_eq!(reaped.unwrap().attempts, 1);
        if split.unwrap() {
            depth += 1;
        }
        let row = &ledger.store.shards(job, 0, 1).await.unwrap()[0];
        assert_eq!(row.split_depth, depth);
    }
}
