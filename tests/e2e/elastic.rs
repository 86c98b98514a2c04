//! Workers that are slow, killed, frozen, and that join: whatever becomes of them, a job gives the
//! integers of one undisturbed worker, and counts every token once.

use std::time::Duration;

use assay_api::{DocumentRow, JobId, WorkerState};
use assay_testkit::{Signal, is_running};
use tokio::time::Instant;

use crate::ledger::counted_once;
use crate::long_job::{job, roots, sums, try_moment};
use crate::random::Random;
use crate::service::Service;

const DEVICES: [&str; 2] = ["cpu:0", "cpu:1"];
/// In every round of the suite and of the soak one of these numbers of workers begins.
const WORKERS: [usize; 4] = [1, 2, 3, 5];
/// About the time that a shard takes.
const SHARD: Duration = Duration::from_millis(300);
/// Minutes of the soak.
const MINUTES: &str = "ASSAY_SOAK_MINUTES";

/// What is done to the workers of a running job.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// One is killed, and another one joins.
    Kill,
    /// One stands still beyond its lease, and goes on.
    Freeze,
    /// Another one joins.
    Join,
}

impl Disturbance {
    fn draw(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Kill,
            1 => Self::Freeze,
            _ => Self::Join,
        }
    }
}

/// A service, and what an undisturbed worker computed on it.
struct Scene {
    service: Service,
    undisturbed: Vec<DocumentRow>,
}

impl Scene {
    async fn new() -> Self {
        let mut service = Service::start(roots()).await;
        service.add_worker(DEVICES[0]);
        let id = service.client.submit(&job()).await;
        service.client.succeeded(id).await;
        assert_eq!(counted_once(&mut service.ledger().await, id).await, 0);
        let undisturbed = sums(&service, id).await;
        service.workers[0].stop().await;
        Self {
            service,
            undisturbed,
        }
    }

    /// Runs the job once more on `workers` workers that are slowed down, with up to `most`
    /// disturbances.
    async fn round(&mut self, workers: usize, most: u64, random: &mut Random) {
        let delay = format!("delay={:.3}", 0.05 * random.unit());
        let started = Instant::now();
        for _ in 0..workers {
            self.join(&delay, random);
        }
        let id = self.service.client.submit(&job()).await;
        let mut disturbances = Vec::new();
        for _ in 0..=random.below(most) {
            let disturbance = Disturbance::draw(random);
            if !try_moment(&self.service, id, SHARD, random).await {
                break;
            }
            self.disturb(disturbance, &delay, random).await;
            disturbances.push(disturbance);
        }
        let (in_vain, attempts) = self.survived(id).await;
        println!(
            "{workers} workers, {delay}, {disturbances:?}: equal, {in_vain} of {attempts} attempts \
             in vain, {:.1} s",
            started.elapsed().as_secs_f64()
        );
    }

    fn join(&mut self, delay: &str, random: &mut Random) {
        let device = DEVICES[usize::from(random.below(2) == 1)];
        self.service.add_worker_with(device, &["--fault", delay]);
    }

    async fn disturb(&mut self, disturbance: Disturbance, delay: &str, random: &mut Random) {
        let running: Vec<usize> = (0..self.service.workers.len())
            .filter(|worker| is_running(self.service.workers[*worker].pid()))
            .collect();
        let drawn = random.below(running.len() as u64);
        let victim = running[usize::try_from(drawn).expect("an index")];
        match disturbance {
            Disturbance::Kill => {
                self.service.workers[victim].kill().await;
                self.join(delay, random);
            }
            Disturbance::Freeze => {
                // One that has not registered yet cannot be lost.
                self.service.row_of(victim).await;
                self.service.workers[victim].signal(Signal::STOP);
                self.service
                    .row_becomes(victim, "to be lost", |row| row.state == WorkerState::Lost)
                    .await;
                self.service.workers[victim].signal(Signal::CONT);
            }
            Disturbance::Join => self.join(delay, random),
        }
    }

    /// Checks the numbers of a job, and ends its workers. Answers how many of its attempts were in
    /// vain, and how many there were.
    async fn survived(&self, id: JobId) -> (i64, usize) {
        let service = &self.service;
        service.client.succeeded(id).await;
        assert!(sums(service, id).await == self.undisturbed, "other sums");
        let in_vain = counted_once(&mut service.ledger().await, id).await;
        let shards = service.client.shards(id).await;
        for worker in service.workers.iter().filter(|w| is_running(w.pid())) {
            worker.stop().await;
        }
        (
            in_vain,
            shards.iter().map(|shard| shard.attempts.len()).sum(),
        )
    }
}

/// Each number of workers once, with one disturbance.
#[tokio::test]
async fn the_integers_do_not_depend_on_who_is_there() {
    let mut random = Random::seeded();
    let mut scene = Scene::new().await;
    for workers in WORKERS {
        scene.round(workers, 1, &mut random).await;
    }
    scene.service.finish().await;
}

/// Rounds until the time is over, each with a seed of its own; the first difference ends it.
#[tokio::test]
#[ignore = "takes as many minutes as it is told: make soak"]
async fn soak() {
    let minutes = std::env::var(MINUTES).map_or(30.0, |minutes| {
        minutes.parse().expect("ASSAY_SOAK_MINUTES is a number")
    });
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let mut seeds = Random::seeded();
    let mut scene = Scene::new().await;
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        let seed = seeds.below(u64::from(u32::MAX));
        println!("round {rounds}: seed {seed}");
        let mut random = Random(seed);
        let workers = WORKERS[usize::try_from(random.below(4)).expect("an index")];
        scene.round(workers, 4, &mut random).await;
        rounds += 1;
    }
    println!("{rounds} rounds, all equal");
    scene.service.finish().await;
}
