//! Whatever is killed at whatever moment: the job succeeds with the numbers of an undisturbed run,
//! and no more work is done twice than what the devices that were cut off had claimed.

use std::collections::BTreeMap;
use std::time::Duration;

use assay_api::AttemptOutcome::{Committed, Lost, Released, Superseded};
use assay_api::{AttemptRow, DocumentRow, JobId, WorkerState};
use assay_testkit::{LIMIT, Signal, eventually};

use crate::ledger::counted_once;
use crate::long_job::{job, moment, roots, sums};
use crate::random::Random;
use crate::service::Service;

const DEVICES: [&str; 2] = ["cpu:0", "cpu:1"];
/// Seconds of work that a device holds at once at most: a claim of two seconds, by a rate that a
/// busy machine may have measured too high, and what waits to be counted.
const MOST_HELD: f64 = 4.0;

/// A service with two workers of one device each, and the sums of an undisturbed run.
struct Scene {
    service: Service,
    undisturbed: Vec<DocumentRow>,
    shard: Duration,
    /// Planned operations per second of a device.
    rate: f64,
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
        let rate = shards.iter().map(|shard| shard.flops).sum::<f64>() / result.datasets[0].seconds;
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
            rate,
            random,
        }
    }

    /// Posts the job and waits for a random moment of it.
    async fn in_the_middle(&mut self) -> JobId {
        let id = self.service.client.submit(&job()).await;
        moment(&self.service, id, self.shard, &mut self.random).await;
        id
    }

    /// Checks the disturbed job; what `cut_off` devices had claimed may have been in vain.
    async fn survived(self, id: JobId, cut_off: usize) {
        let result = self.service.client.succeeded(id).await;
        assert_eq!(sums(&self.service, id).await, self.undisturbed);
        let in_vain = counted_once(&mut self.service.ledger().await, id).await;
        let mut seconds = BTreeMap::<String, f64>::new();
        let mut listed = 0;
        for shard in self.service.client.shards(id).await {
            for attempt in &shard.attempts {
                let outcome = attempt.outcome.expect("the job has ended");
                if matches!(outcome, Committed | Superseded) {
                    continue;
                }
                assert!(matches!(outcome, Lost | Released), "{shard:?}");
                *seconds.entry(attempt.worker.clone()).or_default() += shard.flops / self.rate;
                listed += 1;
            }
        }
        println!("{in_vain} attempts in vain, planned seconds by worker: {seconds:?}");
        assert_eq!(listed, in_vain);
        assert!(seconds.len() <= cut_off, "{seconds:?}");
        for held in seconds.values() {
            assert!(*held <= MOST_HELD, "{held} s of work were cut off at once");
        }
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
    frozen_and_back(&scene.service, victim).await;
    scene.survived(id, 1).await;
}

/// Stops a worker until its work is given to others, and lets it go on.
async fn frozen_and_back(service: &Service, worker: usize) {
    service.workers[worker].signal(Signal::STOP);
    service
        .row_becomes(worker, "to be lost and to hold nothing", |row| {
            (row.state, row.running) == (WorkerState::Lost, 0)
        })
        .await;
    service.workers[worker].signal(Signal::CONT);
    service
        .row_becomes(worker, "to live again", |row| {
            row.state == WorkerState::Live
        })
        .await;
}

/// What a frozen worker was about to bring is refused when it wakes, and told.
#[tokio::test]
async fn a_result_after_the_lease_is_late() {
    /// Each micro-batch stands still for so long before it is computed.
    const DELAY: Duration = Duration::from_secs(2);
    let mut scene = Scene::new().await;
    let victim = scene.service.workers.len();
    let delay = format!("delay={}", DELAY.as_secs());
    scene
        .service
        .add_worker_with(DEVICES[1], &["--fault", &delay]);
    let before = scene.service.row_of(victim).await;
    assert_eq!(before.late_commits, 0);
    let id = scene.service.client.submit(&job()).await;
    let what = "the slow worker to hold a shard";
    eventually(what, LIMIT, async || {
        let shards = scene.service.client.shards(id).await;
        let mut attempts = shards.iter().flat_map(|shard| &shard.attempts);
        attempts
            .any(|a| a.worker == before.name && a.outcome.is_none())
            .then_some(())
    })
    .await;
    // A moment in the middle of the delay.
    tokio::time::sleep(DELAY / 2).await;
    frozen_and_back(&scene.service, victim).await;
    let told = "to have brought a result too late";
    let row = scene
        .service
        .row_becomes(victim, told, |row| row.late_commits > 0)
        .await;
    assert_eq!(row.id, before.id);
    scene.service.workers[victim].logs("late").await;
    // The lease ran out, or before it did a copy was quicker: others come late only by that.
    let shards = scene.service.client.shards(id).await;
    let attempts = shards.iter().flat_map(|shard| &shard.attempts);
    let late: Vec<_> = attempts.filter(|attempt| attempt.late).collect();
    let of_victim = |attempt: &AttemptRow| attempt.worker == before.name;
    assert!(late.iter().any(|attempt| of_victim(attempt)), "{late:?}");
    for attempt in late {
        let is_lost = attempt.outcome == Some(Lost) && of_victim(attempt);
        let was_slower = attempt.outcome == Some(Superseded);
        assert!(is_lost || was_slower, "{attempt:?}");
    }
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
