//! Many workers and all ways an attempt can end, at once: the sums come out as in an undisturbed
//! run, every token is counted once, and nothing deadlocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use assay_api::{JobRequest, JobState, WorkerId};
use assay_store::{Claimant, DeviceRate, MAX_LOSSES, ShardClaim, ShardOutcome, StoreError, Work};
use chrono::{TimeDelta, Utc};

use crate::support::{
    LEASE, Ledger, RATE_KEY, claimant, compute, expected, new_plan, request, spans,
};

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }
}

fn computed(shard: &ShardClaim) -> ShardOutcome {
    ShardOutcome {
        tokens: spans(shard),
        ..compute(shard)
    }
}

/// One worker of the chaos.
struct Chaotic<'a> {
    ledger: &'a Ledger,
    worker: WorkerId,
    random: Random,
    losses_left: &'a AtomicI32,
    /// Computed, not told yet.
    ready: Vec<(i64, ShardOutcome)>,
    /// Computed, and kept for too long.
    abandoned: Vec<(i64, ShardOutcome)>,
}

impl Chaotic<'_> {
    /// Claims, and ends its attempts in every way, those of the past included.
    async fn work(mut self) -> Result<(), StoreError> {
        loop {
            // One shard at a time, several, or what others have too: to this device all are slow.
            let flops_per_second = [1e-3, 50.0, 1e9][self.random.index(3)];
            let claimant = Claimant {
                rate: Some(DeviceRate {
                    key: RATE_KEY,
                    flops_per_second,
                }),
                ..claimant(self.worker)
            };
            let claims = self.ledger.store.claim(&claimant, None).await?;
            if claims.is_empty() {
                break;
            }
            for claim in claims {
                let Work::Shard(shard) = claim.work else {
                    panic!("not planned")
                };
                self.end(claim.fence, &shard).await?;
            }
        }
        self.commit_ready().await?;
        self.ready = std::mem::take(&mut self.abandoned);
        self.commit_ready().await
    }

    async fn end(&mut self, fence: i64, shard: &ShardClaim) -> Result<(), StoreError> {
        let store = &self.ledger.store;
        if self.random.below(4) == 0 {
            let depth = shard.split_depth + 1;
            store.record_split(self.worker, fence, depth).await?;
        }
        match self.random.below(8) {
            0 => store.release_attempt(self.worker, fence, 1).await?,
            1 => {
                self.abandoned.push((fence, computed(shard)));
                // A time at which every lease has run out, those of the others too.
                if self.losses_left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
                    store.reap(Some(late)).await?;
                }
            }
            _ => self.ready.push((fence, computed(shard))),
        }
        if self.random.below(3) == 0 {
            self.commit_ready().await?;
        }
        if self.random.below(3) == 0
            && let Some(abandoned) = self.abandoned.pop()
        {
            // Lost in most cases, and live where nobody has reaped since.
            self.ledger
                .store
                .record_split(self.worker, abandoned.0, shard.split_depth + 1)
                .await?;
            self.ready.push(abandoned);
        }
        Ok(())
    }

    /// Commits what is ready, once or twice at once, while its leases are renewed.
    async fn commit_ready(&mut self) -> Result<(), StoreError> {
        let store = &self.ledger.store;
        let ready = std::mem::take(&mut self.ready);
        let outcomes: Vec<_> = ready.iter().map(|(fence, o)| (*fence, o)).collect();
        if self.random.below(2) == 0 {
            let (one, two) = tokio::join!(
                store.commit_shards(self.worker, &outcomes),
                store.commit_shards(self.worker, &outcomes)
            );
            assert_eq!(one?, two?);
        } else {
            let asked: Vec<_> = ready.iter().map(|(fence, _)| (*fence, Some(1.0))).collect();
            let (renewed, committed) = tokio::join!(
                store.renew(self.worker, &asked, LEASE, None),
                store.commit_shards(self.worker, &outcomes)
            );
            renewed?;
            committed?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_do_not_depend_on_who_is_lost_when() {
    let seed = std::env::var("ASSAY_TEST_SEED").map_or_else(
        |_| u64::from(Utc::now().timestamp_subsec_nanos()),
        |seed| seed.parse().expect("ASSAY_TEST_SEED is a number"),
    );
    println!("ASSAY_TEST_SEED={seed}");
    let lengths: Vec<u64> = (0..60).map(|i| (i * 7) % 31).collect();
    let ledger = Arc::new(Ledger::fresh().await);
    let planner = ledger.worker("planner").await;
    let wanted = JobRequest {
        token_output: true,
        ..request(&["a"])
    };
    let job = ledger.job_of(&wanted).await;
    ledger.commit_plan(planner, &new_plan(&[&lengths])).await;

    // Every reaping may lose every running shard once, and no shard may be lost 20 times.
    let losses_left = Arc::new(AtomicI32::new(MAX_LOSSES - 1));
    let mut round = 0;
    while ledger.state(job).await.state == JobState::Running {
        round += 1;
        assert!(round < 100, "shards are left that nobody can claim");
        let mut workers = tokio::task::JoinSet::new();
        for index in 0..6 {
            let (ledger, losses_left) = (Arc::clone(&ledger), Arc::clone(&losses_left));
            workers.spawn(async move {
                let worker = ledger.worker(&format!("w{index}")).await;
                let chaotic = Chaotic {
                    ledger: &ledger,
                    worker,
                    random: Random(seed ^ (round << 32) ^ index),
                    losses_left: &losses_left,
                    ready: Vec::new(),
                    abandoned: Vec::new(),
                };
                Box::pin(chaotic.work()).await
            });
        }
        while let Some(ended) = workers.join_next().await {
            ended.unwrap().unwrap();
        }
    }
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
    let documents = ledger.store.documents(job, 0, 0, 1000).await.unwrap();
    let sums: Vec<String> = documents.into_iter().map(|d| d.nll_exact).collect();
    assert_eq!(sums, expected(&lengths));
    for (document, sum) in sums.iter().enumerate() {
        let tokens = ledger.store.tokens(job, 0, document as u64, 0, 100).await;
        let units = tokens.unwrap().into_iter().filter_map(|t| t.nll_exact);
        let total: i64 = units.map(|units| units.parse::<i64>().unwrap()).sum();
        assert_eq!(&total.to_string(), sum, "document {document}");
    }
    for shard in ledger.store.shards(job, 0, 1000).await.unwrap() {
        let committed = shard
            .attempts
            .iter()
            .filter(|a| a.outcome == Some(assay_api::AttemptOutcome::Committed));
        assert_eq!(committed.count(), 1, "shard {}", shard.index);
    }
}
