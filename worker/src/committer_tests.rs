use assay_api::{JobId, JobState};
use assay_store::{Claim, ShardClaim, Work};
use assay_testkit::Proxy;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ledger_support::{self as support, compute};

const PATIENCE: Duration = Duration::from_mins(5);
/// Lengths of documents: some shards of a window each.
const LENGTHS: &[u64] = &[40, 32, 24, 16, 8];

/// A worker without devices, whose committer counts.
struct Scene {
    ledger: support::Ledger,
    leases: Leases,
    stopping: CancellationToken,
    results: mpsc::Sender<Computed>,
    committing: JoinHandle<Result<(), StoreError>>,
    worker: assay_api::WorkerId,
}

impl Scene {
    /// The committer speaks to the ledger through the proxy, if there is one.
    async fn new(proxied: bool) -> (Self, Option<Proxy>) {
        let ledger = support::Ledger::fresh().await;
        let worker = ledger.worker("w").await;
        let (store, proxy) = if proxied {
            let proxy = Proxy::start(ledger.database.url()).await;
            let store = assay_store::Store::connect(proxy.url(), 2).await.unwrap();
            (store, Some(proxy))
        } else {
            (ledger.store.clone(), None)
        };
        let stopping = CancellationToken::new();
        let leases = Leases::new(PATIENCE);
        let committer = Committer {
            ledger: Ledger {
                worker,
                store,
                stopping: stopping.clone(),
            },
            leases: leases.clone(),
            profiler: Profiler::default(),
        };
        let (results, ready) = mpsc::channel(WAITING);
        let scene = Self {
            ledger,
            leases,
            stopping,
            results,
            committing: tokio::spawn(committer.serve(ready)),
            worker,
        };
        (scene, proxy)
    }

    /// Plans a job, and claims all its shards.
    async fn claim_all(&self) -> (JobId, Vec<(i64, ShardClaim)>) {
        let job = self.ledger.planned(self.worker, LENGTHS).await;
        let mut claimed = Vec::new();
        while let Some(Claim { fence, work, .. }) = self.ledger.claim(self.worker).await {
            match work {
                Work::Shard(shard) => claimed.push((fence, shard)),
                Work::Plan(_) => panic!("it is planned"),
            }
        }
        assert!(claimed.len() > 2, "{claimed:?}");
        (job, claimed)
    }

    async fn send(&self, fence: i64, shard: &ShardClaim, change: impl FnOnce(&mut ShardOutcome)) {
        let mut outcome = compute(shard);
        change(&mut outcome);
        let computed = Computed {
            lease: self.leases.hold(fence),
            job: JobId::nil(),
            shard: shard.index,
            outcome,
            at: Instant::now(),
        };
        assert!(self.results.send(computed).await.is_ok());
    }

    /// Ends as a worker whose devices have ended.
    async fn end(self) -> (Result<(), StoreError>, support::Ledger, Leases) {
        drop(self.results);
        let ended = self.committing.await.unwrap();
        (ended, self.ledger, self.leases)
    }
}

#[tokio::test]
async fn what_is_computed_is_counted_before_it_ends() {
    let (scene, _) = Scene::new(false).await;
    let (job, claimed) = scene.claim_all().await;
    for (fence, shard) in &claimed {
        scene.send(*fence, shard, |_| ()).await;
    }
    // As the worker stops.
    scene.stopping.cancel();
    let (ended, ledger, leases) = scene.end().await;
    ended.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
    assert_eq!(leases.to_renew(), []);
}

#[tokio::test]
async fn one_that_is_refused_takes_no_other_with_it() {
    let (scene, _) = Scene::new(false).await;
    let (bad, bad_shards) = scene.claim_all().await;
    let (good, good_shards) = scene.claim_all().await;
    // The ledger has no number for it. All are sent before the first is taken: this test has one
    // thread, and nothing is waited for while there is room.
    let (fence, shard) = &bad_shards[0];
    scene
        .send(*fence, shard, |o| o.split_depth = u32::MAX)
        .await;
    for (fence, shard) in bad_shards[1..].iter().chain(&good_shards) {
        scene.send(*fence, shard, |_| ()).await;
    }
    let (ended, ledger, leases) = scene.end().await;
    ended.unwrap();
    assert_eq!(ledger.state(good).await.state, JobState::Succeeded);
    let bad = ledger.state(bad).await;
    assert_eq!(bad.state, JobState::Failed);
    let error = bad.error.unwrap();
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.detail.contains("cannot be counted"), "{error:?}");
    assert_eq!(leases.to_renew(), []);
}

#[tokio::test]
async fn a_result_that_comes_too_late_is_dropped() {
    let (scene, _) = Scene::new(false).await;
    let (job, claimed) = scene.claim_all().await;
    scene.ledger.store.cancel_job(job).await.unwrap();
    let (fence, shard) = &claimed[0];
    scene.send(*fence, shard, |_| ()).await;
    let (ended, ledger, leases) = scene.end().await;
    ended.unwrap();
    assert_eq!(leases.to_renew(), []);
    let shards = ledger.store.shards(job, 0, 100).await.unwrap();
    let late: Vec<i64> = shards
        .iter()
        .flat_map(|shard| &shard.attempts)
        .filter(|attempt| attempt.late)
        .map(|attempt| attempt.fence)
        .collect();
    assert_eq!(late, [*fence]);
    assert_eq!(ledger.state(job).await.progress.scored_tokens, 0);
}

#[tokio::test]
async fn results_wait_for_a_database_that_is_away() {
    let (scene, proxy) = Scene::new(true).await;
    let proxy = proxy.unwrap();
    let (job, claimed) = scene.claim_all().await;
    proxy.refuse();
    for (fence, shard) in &claimed {
        scene.send(*fence, shard, |_| ()).await;
    }
    // Not a condition to wait for: the length of the cut.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!scene.committing.is_finished());
    assert_ne!(scene.leases.to_renew(), []);
    proxy.heal();
    let (ended, ledger, _) = scene.end().await;
    ended.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
}

/// However much waits: the grace is for all of it together, and no job is blamed.
#[tokio::test]
async fn a_stopping_worker_waits_once_for_a_database_that_is_away() {
    let (scene, proxy) = Scene::new(true).await;
    let proxy = proxy.unwrap();
    let (job, claimed) = scene.claim_all().await;
    proxy.refuse();
    let asked = Instant::now();
    scene.stopping.cancel();
    for (fence, shard) in &claimed {
        scene.send(*fence, shard, |_| ()).await;
    }
    let (ended, ledger, leases) = scene.end().await;
    assert!(ended.unwrap_err().is_transient());
    assert!(asked.elapsed() < 2 * crate::retry::GRACE);
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    assert!(!leases.to_renew().is_empty(), "they run out");
}

/// `cargo test --release -p assay-worker -- --ignored --nocapture committing`
#[tokio::test]
#[ignore = "a measurement"]
async fn committing_costs() {
    let (scene, _) = Scene::new(false).await;
    let lengths: Vec<u64> = vec![64; 250];
    let job = scene.ledger.planned(scene.worker, &lengths).await;
    let mut claimed = Vec::new();
    let (mut claims, started) = (0, Instant::now());
    loop {
        let mut claimant = support::claimant(scene.worker);
        // Some shards at a time, as a device claims that has measured itself.
        claimant.rate.as_mut().unwrap().flops_per_second = 20.0;
        let batch = scene.ledger.store.claim(&claimant, None).await.unwrap();
        if batch.is_empty() {
            break;
        }
        claims += 1;
        claimed.extend(batch);
    }
    let claiming = started.elapsed();
    let started = Instant::now();
    for claim in &claimed {
        let Work::Shard(shard) = &claim.work else {
            panic!("it is planned")
        };
        scene.send(claim.fence, shard, |_| ()).await;
    }
    let (ended, ledger, _) = scene.end().await;
    ended.unwrap();
    let (shards, committing) = (claimed.len(), started.elapsed());
    let each = |time: Duration| time.as_secs_f64() * 1e3 / shards as f64;
    println!(
        "{shards} shards: {claims} claims, {:.2} ms a shard; committed in {:.2} ms a shard",
        each(claiming),
        each(committing)
    );
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
}
