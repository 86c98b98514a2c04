//! A worker that is cut off from the database, a device that hangs, a worker on which everything
//! fails: the job succeeds with the integers of an undisturbed run, and the service says who was
//! in trouble.

use std::collections::BTreeSet;
use std::time::Duration;

use assay_api::ErrorCode::{ComputeFailed, DatabaseUnreachable};
use assay_api::{AttemptOutcome, DocumentRow, JobId, WorkerState};
use assay_testkit::{Proxy, is_running};

use crate::ledger::counted_once;
use crate::long_job::{job, moment, roots, sums};
use crate::random::Random;
use crate::service::Service;

/// About the time that a shard takes.
const SHARD: Duration = Duration::from_millis(300);
/// Shorter than the lease by more than a renewal takes.
const SHORT_CUT: Duration = Duration::from_secs(1);
/// The worker that is well, and the one that is not.
const WELL: usize = 0;
const ILL: usize = 1;

/// A service with a worker that is well, and what it computed alone.
struct Scene {
    service: Service,
    undisturbed: Vec<DocumentRow>,
    random: Random,
}

impl Scene {
    async fn new() -> Self {
        let random = Random::seeded();
        let mut service = Service::start(roots()).await;
        service.add_worker("cpu:0");
        let id = service.client.submit(&job()).await;
        service.client.succeeded(id).await;
        let undisturbed = sums(&service, id).await;
        Self {
            service,
            undisturbed,
            random,
        }
    }

    /// The same with a worker that can be cut off, in the middle of another job.
    async fn in_the_middle() -> (Self, Proxy, JobId) {
        let mut scene = Self::new().await;
        let proxy = scene.service.add_worker_behind_proxy("cpu:1").await;
        scene.service.row_of(ILL).await;
        let id = scene.service.client.submit(&job()).await;
        moment(&scene.service, id, SHARD, &mut scene.random).await;
        (scene, proxy, id)
    }

    /// Waits for the end of a job and checks its numbers.
    async fn survived(&self, id: JobId) {
        self.service.client.succeeded(id).await;
        assert_eq!(sums(&self.service, id).await, self.undisturbed);
        let in_vain = counted_once(&mut self.service.ledger().await, id).await;
        println!("{in_vain} attempts in vain");
    }

    /// Runs another job, and answers who computed what counts of it.
    async fn workers_of_another(&self) -> BTreeSet<String> {
        let id = self.service.client.submit(&job()).await;
        self.survived(id).await;
        let shards = self.service.client.shards(id).await;
        let attempts = shards.into_iter().flat_map(|shard| shard.attempts);
        let counted = attempts.filter(|a| a.outcome == Some(AttemptOutcome::Committed));
        counted.map(|attempt| attempt.worker).collect()
    }

    /// The worker that was cut off is back, says so, and computes again.
    async fn is_back(&self) {
        let row = self
            .service
            .row_becomes(ILL, "to live and to say what it was", |row| {
                row.state == WorkerState::Live && row.last_error.is_some()
            })
            .await;
        let error = row.last_error.expect("waited for");
        assert_eq!(error.code, DatabaseUnreachable, "{error:?}");
        assert!(error.detail.contains("lease"), "{error:?}");
        assert!(self.workers_of_another().await.contains(&row.name));
    }
}

#[tokio::test]
async fn cut_off_for_less_than_the_lease() {
    let (scene, proxy, id) = Scene::in_the_middle().await;
    proxy.refuse();
    // Not a condition to wait for: the length of the cut.
    tokio::time::sleep(SHORT_CUT).await;
    proxy.heal();
    scene.survived(id).await;
    let shards = scene.service.client.shards(id).await;
    let attempts = shards.iter().flat_map(|shard| &shard.attempts);
    let lost: Vec<_> = attempts
        .filter(|attempt| attempt.outcome == Some(AttemptOutcome::Lost))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    let row = scene.service.row_of(ILL).await;
    assert_eq!((row.state, row.last_error), (WorkerState::Live, None));
    assert!(!scene.service.workers[ILL].has_logged(DatabaseUnreachable.as_str()));
    assert!(scene.workers_of_another().await.contains(&row.name));
    scene.service.finish().await;
}

/// Cuts a worker off by `cut` until its lease is gone and it knows, and heals.
async fn cut_off_for_long(cut: impl FnOnce(&Proxy)) {
    let (scene, proxy, id) = Scene::in_the_middle().await;
    cut(&proxy);
    let service = &scene.service;
    service
        .row_becomes(ILL, "to be lost and to hold nothing", |row| {
            (row.state, row.running) == (WorkerState::Lost, 0)
        })
        .await;
    service.workers[ILL]
        .logs(DatabaseUnreachable.as_str())
        .await;
    proxy.heal();
    scene.is_back().await;
    scene.survived(id).await;
    scene.service.finish().await;
}

#[tokio::test]
async fn cut_off_for_longer_than_the_lease() {
    cut_off_for_long(Proxy::refuse).await;
}

/// Nothing says that the way is gone, and what was on it arrives late.
#[tokio::test]
async fn nothing_arrives_for_longer_than_the_lease() {
    cut_off_for_long(Proxy::silence).await;
}

#[tokio::test]
async fn a_worker_with_a_hung_device_starts_anew() {
    starts_anew(3).await;
}

#[tokio::test]
async fn a_worker_that_hangs_as_it_loads_starts_anew() {
    starts_anew(0).await;
}

/// A device hangs in this micro-batch, or before the first.
async fn starts_anew(micro_batch: u64) {
    let mut scene = Scene::new().await;
    let marker = scene.service.roots.state().join("hung");
    let hang = format!("hang={micro_batch}:{}", marker.display());
    let settings = ["--fault", &hang, "--device-patience", "2"];
    scene.service.add_worker_with("cpu:1", &settings);
    let first = scene.service.row_of(ILL).await;
    let id = scene.service.client.submit(&job()).await;
    let worker = &scene.service.workers[ILL];
    worker.logs("starts itself anew").await;
    assert!(marker.exists());
    let second = scene
        .service
        .row_becomes(ILL, "to run again", |row| row.id != first.id)
        .await;
    assert!(is_running(worker.pid()));
    assert_eq!(second.name, first.name, "the same process");
    scene.survived(id).await;
    let rows = scene.service.client.workers().await;
    let before = rows.iter().find(|row| row.id == first.id).unwrap();
    assert_eq!((before.state, before.running), (WorkerState::Stopped, 0));
    let trouble = before.last_error.as_ref().expect("it has said why");
    assert_eq!(trouble.code, ComputeFailed, "{trouble:?}");
    assert!(scene.workers_of_another().await.contains(&second.name));
    scene.service.finish().await;
}

#[tokio::test]
async fn a_worker_on_which_everything_fails_gets_nothing_more() {
    let mut scene = Scene::new().await;
    // Slow enough for others to succeed meanwhile, by which it shows who is at fault.
    let settings = ["--fault", "fail,delay=0.3"];
    scene.service.add_worker_with("cpu:1", &settings);
    scene.service.row_of(ILL).await;
    let id = scene.service.client.submit(&job()).await;
    let row = scene
        .service
        .row_becomes(ILL, "to be out of service", |row| {
            row.state == WorkerState::OutOfService
        })
        .await;
    let reason = row.out_of_service.expect("it has a reason");
    assert!(reason.contains("--fault fail"), "{reason}");
    scene.survived(id).await;
    let well = scene.service.row_of(WELL).await;
    assert_eq!((well.state, well.out_of_service), (WorkerState::Live, None));
    assert_eq!(scene.workers_of_another().await, [well.name].into());
    assert_eq!(scene.service.row_of(ILL).await.running, 0);
    scene.service.finish().await;
}
