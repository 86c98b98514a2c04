//! Many workers and all ways an attempt can end, at once: the sums come out as in an undisturbed
//! run, every token is counted once, and nothing deadlocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use assay_api::{JobRequest, JobState, WorkerId};
use assay_store::{MAX_LOSSES, ShardClaim, ShardOutcome, StoreError, Work};
use chrono::{TimeDelta, Utc};

use crate::support::{LEASE, Ledger, claimant, compute, expected, new_plan, request, spans};

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }
}

fn computed(shard: &ShardClaim) -> ShardOutcome {
    ShardOutcome {
        tokens: spans(shard),
        ..compute(shard)
    }
}

/// One worker: claims, and ends its attempts in every way, those of the past included.
async fn work(
    ledger: &Ledger,
    worker: WorkerId,
    random: &mut Random,
    losses_left: &AtomicI32,
) -> Result<(), StoreError> {
    let store = &ledger.store;
    let mut abandoned = Vec::new();
    while let Some(claim) = store.claim(&claimant(worker), None).await? {
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        let fence = claim.fence;
        if random.below(4) == 0 {
            store
                .record_split(worker, fence, shard.split_depth + 1)
                .await?;
        }
        match random.below(8) {
            0 => store.release_attempt(worker, fence).await?,
            1 => {
                abandoned.push((fence, shard));
                // A time at which every lease has run out, those of the others too.
                if losses_left.fetch_sub(1, Ordering::Relaxed) > 0 {
                    store
                        .reap(Some(Utc::now() + LEASE + TimeDelta::seconds(1)))
                        .await?;
                }
            }
            2 => {
                let twice = computed(&shard);
                let (a, b) = tokio::join!(
                    store.commit_shard(worker, fence, &twice),
                    store.commit_shard(worker, fence, &twice)
                );
                assert_eq!(a?, b?);
            }
            _ => {
                let fences = [fence];
                let outcome = computed(&shard);
                let (renewed, committed) = tokio::join!(
                    store.renew(worker, &fences, LEASE, None),
                    store.commit_shard(worker, fence, &outcome)
                );
                renewed?;
                committed?;
            }
        }
        if random.below(3) == 0
            && let Some((fence, shard)) = abandoned.pop()
        {
            // Lost in most cases, and live where nobody has reaped since.
            store
                .record_split(worker, fence, shard.split_depth + 1)
                .await?;
            store.commit_shard(worker, fence, &computed(&shard)).await?;
        }
    }
    for (fence, shard) in abandoned {
        store.commit_shard(worker, fence, &computed(&shard)).await?;
    }
    Ok(())
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
                let mut random = Random(seed ^ (round << 32) ^ index);
                Box::pin(work(&ledger, worker, &mut random, &losses_left)).await
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
