//! Whatever is killed at whatever moment: the job succeeds with the numbers of an undisturbed run,
//! and no more work is done twice than what ran on the devices that were cut off.

use std::time::Duration;

use assay_api::{DocumentRow, JobId, WorkerState};
use assay_testkit::{LIMIT, Signal, eventually};

use crate::ledger::counted_once;
use crate::long_job::{job, moment, roots, sums};
use crate::random::Random;
use crate::service::Service;

const DEVICES: [&str; 2] = ["cpu:0", "cpu:1"];

/// A service with two workers of one device each, and the sums of an undisturbed run.
struct Scene {
    service: Service,
    undisturbed: Vec<DocumentRow>,
    shard: Duration,
    random: Random,
}

impl Scene {
    async fn new() -> Self {
        let random = Random::seeded();
        let mut service = Service::start_on_own_postgres(roots()).await;
        for device in DEVICES {
            service.add_worker(device);
        }
        let id = service.client.submit(&job()).await;
        let result = service.client.succeeded(id).await;
        let shards = service.client.shards(id).await;
        assert!(shards.len() >= 20, "{} shards", shards.len());
        let repeated = counted_once(&mut service.ledger().await, id).await;
        assert_eq!(repeated, 0, "nothing disturbed it");
        let undisturbed = sums(&service, id).await;
        let seconds = result.datasets[0].seconds / shards.len() as f64;
        println!(
            "{} shards of {seconds:.2} s, {:.1} s in all",
            shards.len(),
            result.performance.seconds
        );
        Self {
            service,
            undisturbed,
            shard: Duration::from_secs_f64(seconds),
            random,
        }
    }

    /// Posts the job and waits for a random moment of it.
    async fn in_the_middle(&mut self) -> JobId {
        let id = self.service.client.submit(&job()).await;
        moment(&self.service, id, self.shard, &mut self.random).await;
        id
    }

    /// Checks the disturbed job; `most` attempts may have been in vain.
    async fn survived(self, id: JobId, most: i64) {
        let result = self.service.client.succeeded(id).await;
        assert_eq!(sums(&self.service, id).await, self.undisturbed);
        let repeated = counted_once(&mut self.service.ledger().await, id).await;
        println!("{repeated} attempts in vain");
        assert!(
            repeated <= most,
            "{repeated} attempts in vain, {most} expected at most"
        );
        let performance = &result.performance;
        assert_eq!(performance.counted_tokens, result.datasets[0].scored_tokens);
        assert!(performance.computed_tokens >= performance.counted_tokens);
        self.service.finish().await;
    }
}

#[tokio::test]
async fn a_worker_killed() {
    let mut scene = Scene::new().await;
    let id = scene.in_the_middle().await;
    let victim = scene.random.below(2);
    let victim = usize::try_from(victim).unwrap();
    scene.service.workers[victim].kill().await;
    scene.service.add_worker(DEVICES[victim]);
    scene.survived(id, 1).await;
}

#[tokio::test]
async fn a_worker_frozen_beyond_its_lease() {
    let mut scene = Scene::new().await;
    let id = scene.in_the_middle().await;
    let victim = usize::try_from(scene.random.below(2)).unwrap();
    let frozen = &scene.service.workers[victim];
    frozen.signal(Signal::STOP);
    let client = &scene.service.client;
    let name = format!("-{}", frozen.pid());
    let state = async || {
        let workers = client.workers().await;
        let worker = workers
            .into_iter()
            .find(|worker| worker.name.ends_with(&name));
        let worker = worker.expect("the worker has registered");
        (worker.state, worker.running)
    };
    eventually("the frozen worker to be lost", LIMIT, async || {
        (state().await == (WorkerState::Lost, 0)).then_some(())
    })
    .await;
    frozen.signal(Signal::CONT);
    eventually("the frozen worker to live again", LIMIT, async || {
        (state().await.0 == WorkerState::Live).then_some(())
    })
    .await;
    scene.survived(id, 1).await;
}

#[tokio::test]
async fn the_server_killed() {
    let mut scene = Scene::new().await;
    let id = scene.in_the_middle().await;
    scene.service.restart_server().await;
    // Workers go on without it.
    scene.survived(id, 0).await;
}

#[tokio::test]
async fn postgres_restarted() {
    let mut scene = Scene::new().await;
    let id = scene.in_the_middle().await;
    let postgres = scene.service.postgres();
    postgres
        .cluster
        .restart_immediate()
        .await
        .expect("PostgreSQL starts again");
    // What ran on either device may be cut off.
    scene.survived(id, 2).await;
}
