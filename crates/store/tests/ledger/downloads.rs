//! How far a planning has fetched its files: told under a live fence only, shown while it plans.

use assay_api::{Download, JobState};
use chrono::{TimeDelta, Utc};

use crate::support::{LEASE, Ledger, compute, new_plan};

fn download(bytes: u64) -> Download {
    Download {
        bytes,
        total_bytes: 100,
    }
}

#[tokio::test]
async fn a_download_is_shown_while_its_planning_lives() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    let job = ledger.job(&["a"]).await;
    let tell = async |worker, fence, bytes| {
        let told = ledger.store.record_download(worker, fence, download(bytes));
        told.await.unwrap()
    };
    let shown = async || ledger.state(job).await.progress.download;
    assert_eq!(shown().await, None);

    let lost = ledger.claim(one).await.unwrap().fence;
    assert_eq!(shown().await, None, "nothing is fetched yet");
    assert!(tell(one, lost, 10).await);
    assert_eq!(shown().await, Some(download(10)));
    assert!(tell(one, lost, 5).await, "a file was begun anew");
    assert_eq!(shown().await, Some(download(5)));
    assert!(!tell(two, lost, 20).await, "another worker's fence");
    assert!(!tell(one, i64::MAX, 20).await, "no such fence");
    assert!(tell(one, lost, 200).await);
    assert_eq!(shown().await, Some(download(100)), "never more than all");

    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    ledger.store.reap(Some(late)).await.unwrap();
    assert_eq!(shown().await, None, "nobody fetches");
    assert!(!tell(one, lost, 30).await, "what is lost stays lost");
    let fence = ledger.claim(two).await.unwrap().fence;
    assert!(tell(two, fence, 40).await);
    assert!(!tell(one, lost, 30).await, "it is in other hands now");
    assert_eq!(shown().await, Some(download(40)));

    ledger.store.cancel_job(job).await.unwrap();
    assert_eq!(shown().await, None);
    assert!(!tell(two, fence, 50).await, "cancelled");
}

#[tokio::test]
async fn a_planned_job_fetches_nothing_that_is_shown() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job(&["a"]).await;
    let fence = ledger.claim(worker).await.unwrap().fence;
    let told = ledger.store.record_download(worker, fence, download(1));
    assert!(told.await.unwrap());
    let plan = new_plan(&[&[20, 9]]);
    assert!(
        ledger
            .store
            .commit_plan(worker, fence, &plan)
            .await
            .unwrap()
    );
    let planned = ledger.state(job).await;
    assert_eq!(planned.state, JobState::Running);
    assert_eq!(planned.progress.download, None);
    let told = ledger.store.record_download(worker, fence, download(2));
    assert!(!told.await.unwrap(), "committed");
    // A shard's attempt fetches for its own host, and tells nobody.
    let (fence, shard) = ledger.claim_shard(worker).await;
    let told = ledger.store.record_download(worker, fence, download(2));
    assert!(!told.await.unwrap());
    ledger.commit(worker, fence, &compute(&shard)).await;
}
