//! Four workers, one of which is off by one unit in shards that it picks at random; claims, losses
//! and commits at once. Everything is audited, so it is found, and the result is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use assay_api::{AttemptKind, AttemptOutcome, JobId, JobState, WorkerId};
use assay_store::{Claimant, DeviceRate, MAX_LOSSES, ShardOutcome, StoreError, Work};
use chrono::{TimeDelta, Utc};

use super::{off, planned, stay, worker};
use crate::chaos::Random;
use crate::support::{LEASE, Ledger, RATE_KEY, claimant_of, compute};

/// One worker of the chaos. Unlike a process it is never started anew: what is lost is its claims.
struct Chaotic {
    ledger: Arc<Ledger>,
    worker: WorkerId,
    job: JobId,
    wrong: bool,
    random: Random,
    losses_left: Arc<AtomicI32>,
    /// Somebody ended wrongly.
    stop: Arc<AtomicBool>,
}

impl Chaotic {
    async fn run(mut self) -> Result<(), StoreError> {
        let mut abandoned: Vec<(i64, ShardOutcome)> = Vec::new();
        while !self.stop.load(Ordering::Relaxed)
            && self.ledger.state(self.job).await.state == JobState::Running
        {
            let flops_per_second = [1e-3, 50.0, 1e9][self.random.index(3)];
            let claimant = Claimant {
                rate: Some(DeviceRate {
                    key: RATE_KEY,
                    flops_per_second,
                }),
                ..claimant_of(self.worker, "test")
            };
            let claims = self.ledger.store.claim(&claimant, None).await?;
            if claims.is_empty() {
                // Nothing for it, or out of service: what it kept comes late.
                if !abandoned.is_empty() {
                    let taken = std::mem::take(&mut abandoned);
                    self.commit(&taken).await?;
                }
                self.ledger.store.reap(None).await?;
                stay(&self.ledger, self.worker).await;
                continue;
            }
            let mut ready = Vec::new();
            for claim in claims {
                let Work::Shard(shard) = claim.work else {
                    panic!("not planned")
                };
                let units = i64::from(self.wrong && self.random.below(2) == 0);
                let outcome = off(&shard, units);
                match self.random.below(10) {
                    0 => {
                        let store = &self.ledger.store;
                        store.release_attempt(self.worker, claim.fence, 1).await?;
                    }
                    1 => abandoned.push((claim.fence, outcome)),
                    _ => ready.push((claim.fence, outcome)),
                }
            }
            if self.random.below(6) == 0 && self.losses_left.fetch_sub(1, Ordering::Relaxed) > 0 {
                let late = Utc::now() + TimeDelta::hours(2) + LEASE;
                self.ledger.store.reap(Some(late)).await?;
            }
            self.commit(&ready).await?;
            if self.random.below(3) == 0 {
                let taken = std::mem::take(&mut abandoned);
                self.commit(&taken).await?;
            }
        }
        Ok(())
    }

    async fn commit(&mut self, ready: &[(i64, ShardOutcome)]) -> Result<(), StoreError> {
        let store = &self.ledger.store;
        let outcomes: Vec<_> = ready.iter().map(|(fence, o)| (*fence, o)).collect();
        if self.random.below(4) == 0 {
            let (one, two) = tokio::join!(
                store.commit_shards(self.worker, &outcomes),
                store.commit_shards(self.worker, &outcomes)
            );
            one?;
            two?;
        } else {
            store.commit_shards(self.worker, &outcomes).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_worker_that_is_off_by_one_is_found() {
    let seed = std::env::var("ASSAY_TEST_SEED").map_or_else(
        |_| u64::from(Utc::now().timestamp_subsec_nanos()),
        |seed| seed.parse().expect("ASSAY_TEST_SEED is a number"),
    );
    println!("ASSAY_TEST_SEED={seed}");
    let lengths: Vec<u64> = (0..40).map(|i| 1 + (i * 7) % 31).collect();
    let ledger = Arc::new(Ledger::fresh().await);
    let mut workers = Vec::new();
    for name in ["wrong", "two", "three", "four"] {
        workers.push(worker(&ledger, name, &["test"]).await);
    }
    let job = planned(&ledger, workers[1], &lengths, 1.0).await;
    // It takes part: it counts a shard wrongly before the others come.
    let (fence, shard) = ledger.claim_shard(workers[0]).await;
    let outcome = off(&shard, 1);
    ledger.commit(workers[0], fence, &outcome).await;
    assert_ne!(outcome.sums, compute(&shard).sums);

    // No audit may be lost three times, nor a shard twenty times.
    let losses_left = Arc::new(AtomicI32::new(2.min(MAX_LOSSES)));
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = tokio::task::JoinSet::new();
    for (index, worker) in workers.iter().enumerate() {
        let chaotic = Chaotic {
            ledger: Arc::clone(&ledger),
            worker: *worker,
            job,
            wrong: index == 0,
            random: Random(seed ^ ((index as u64 + 1) << 40)),
            losses_left: Arc::clone(&losses_left),
            stop: Arc::clone(&stop),
        };
        running.spawn(Box::pin(chaotic.run()));
    }
    let mut ended = Ok(());
    while let Some(worker) = running.join_next().await {
        let worker = worker.map_err(|e| e.to_string());
        let worker = worker.and_then(|ended| ended.map_err(|e| e.to_string()));
        if worker.is_err() {
            stop.store(true, Ordering::Relaxed);
            ended = worker;
        }
    }
    ended.unwrap();

    super::is_right(&ledger, job, &lengths).await;
    let (audited, warnings) = super::said(&ledger, job).await;
    assert!((audited - 1.0).abs() < 1e-12, "{audited}");
    assert!(
        warnings
            .iter()
            .any(|w| w.starts_with("the worker wrong was taken out")),
        "{warnings:?}"
    );
    for row in ledger.store.workers(None, 10).await.unwrap() {
        assert_eq!(row.out_of_service.is_some(), row.name == "wrong", "{row:?}");
        assert_eq!(row.running, 0, "{row:?}");
    }
    for shard in ledger.store.shards(job, 0, 1000).await.unwrap() {
        let mut counted = shard.attempts.iter().filter(|a| {
            a.kind != AttemptKind::Audit && a.outcome == Some(AttemptOutcome::Committed)
        });
        let count = counted.next().expect("it is counted");
        assert!(counted.next().is_none(), "{shard:?}");
        let others = shard.attempts.iter().filter(|a| {
            a.kind == AttemptKind::Audit
                && a.outcome == Some(AttemptOutcome::Committed)
                && a.fence > count.fence
        });
        assert!(
            others.filter(|a| a.worker != count.worker).count() >= 1,
            "{shard:?}"
        );
    }
}
