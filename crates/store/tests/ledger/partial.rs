//! Numbers of what is counted so far: against sums by hand, and against the result at the end.

use std::collections::BTreeMap;

use assay_api::{JobState, PartialDataset, PartialResult};
use assay_store::{Claim, CommitOutcome, ShardClaim, ShardOutcome, Work};
use sqlx::{Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::support::{Ledger, compute, new_plan, request};

const LENGTHS: &[u64] = &[20, 0, 9, 1, 33, 5, 8, 12];
const NAT: f64 = 4_294_967_296.0;

async fn partial(ledger: &Ledger, job: Uuid) -> PartialResult {
    ledger.store.partial(job).await.unwrap().unwrap()
}

async fn row(ledger: &Ledger, job: Uuid) -> PartialDataset {
    partial(ledger, job).await.datasets.remove(0)
}

/// Units and tokens of each cluster, added up here.
#[derive(Default)]
struct ByHand(BTreeMap<u32, (i64, u64)>);

impl ByHand {
    fn add(&mut self, outcome: &ShardOutcome) {
        for sum in &outcome.sums {
            let entry = self.0.entry(sum.cluster).or_default();
            *entry = (entry.0 + sum.units, entry.1 + sum.scored);
        }
    }

    /// Units, tokens, and the standard error from its definition.
    fn numbers(&self) -> (i64, u64, Option<f64>) {
        let units: i64 = self.0.values().map(|sum| sum.0).sum();
        let tokens: u64 = self.0.values().map(|sum| sum.1).sum();
        let mean = units as f64 / NAT / tokens as f64;
        let squares: f64 = self
            .0
            .values()
            .map(|&(units, n)| (units as f64 / NAT - mean * n as f64).powi(2))
            .sum();
        let g = self.0.len() as f64;
        let error = (g >= 5.0).then(|| (g / (g - 1.0) * squares).sqrt() / tokens as f64);
        (units, tokens, error)
    }
}

fn check(found: &PartialDataset, by_hand: &ByHand) {
    let (units, tokens, error) = by_hand.numbers();
    assert_eq!(found.nll_exact, units.to_string());
    assert_eq!(found.numbers.scored_tokens, tokens);
    assert_eq!(found.clusters as usize, by_hand.0.len());
    let mean = units as f64 / NAT / tokens as f64;
    assert_eq!(found.numbers.mean_nll, Some(mean));
    assert_eq!(found.numbers.perplexity, Some(mean.exp()));
    match (found.numbers.standard_error, error) {
        (None, None) => assert_eq!(found.numbers.confidence_95, None),
        (Some(found_error), Some(error)) => {
            assert!(
                (found_error / error - 1.0).abs() < 1e-12,
                "{found_error} is not {error}"
            );
            assert!(found.numbers.confidence_95.unwrap() > 1.9 * error);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_step_is_the_sum_by_hand_and_the_last_is_the_result() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job(&["a"]).await;
    let queued = row(&ledger, job).await;
    assert_eq!((queued.shards, queued.planned_tokens), (0, None));
    assert_eq!((queued.numbers.mean_nll, queued.points.len()), (None, 0));

    ledger.plan(worker, &[LENGTHS]).await;
    let planned = row(&ledger, job).await;
    assert!(planned.shards > 3, "{planned:?}");
    assert_eq!((planned.shards_done, planned.planned_tokens), (0, Some(88)));
    assert_eq!((planned.nll_exact.as_str(), planned.clusters), ("0", 0));

    let mut by_hand = ByHand::default();
    let mut seen = Vec::new();
    for done in 1..=planned.shards {
        let (fence, shard) = ledger.claim_shard(worker).await;
        // What is computed and not counted is in none of the numbers.
        let outcome = compute(&shard);
        assert_eq!(row(&ledger, job).await.shards_done, done - 1);
        ledger.commit(worker, fence, &outcome).await;
        by_hand.add(&outcome);
        let found = row(&ledger, job).await;
        assert_eq!(found.shards_done, done);
        check(&found, &by_hand);
        seen.push(found.numbers);
        let points: Vec<_> = found.points.iter().map(|point| point.numbers).collect();
        assert_eq!(
            points, seen,
            "each shard is a point as long as there are few"
        );
        assert!(found.points.is_sorted_by_key(|point| point.at));
    }
    assert!(ledger.claim(worker).await.is_none());

    let end = partial(&ledger, job).await;
    assert!(end.complete && end.state == JobState::Succeeded);
    let result = ledger.store.result(job).await.unwrap().unwrap();
    let (end, result) = (&end.datasets[0], &result.datasets[0]);
    assert_eq!(Some(&end.nll_exact), result.nll_exact.as_ref());
    assert_eq!(end.numbers.scored_tokens, result.scored_tokens);
    assert_eq!(end.numbers.perplexity, result.perplexity);
    assert!(result.standard_error.is_some());
    assert_eq!(end.numbers.standard_error, result.standard_error);
    assert_eq!(end.numbers.confidence_95, result.confidence_95);
}

#[tokio::test]
async fn numbers_of_an_earlier_job_are_there_at_once() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let first = ledger.planned(worker, LENGTHS).await;
    ledger.run_all(worker).await;
    let second = ledger.planned(worker, LENGTHS).await;
    let result = ledger.store.result(second).await.unwrap().unwrap();
    assert_eq!(result.datasets[0].reused_from, Some(first));
    let (scored, taken) = (row(&ledger, first).await, row(&ledger, second).await);
    assert_eq!((taken.shards, taken.points.len()), (0, 0));
    assert_eq!(
        (taken.numbers, taken.nll_exact),
        (scored.numbers, scored.nll_exact)
    );
    assert_eq!(taken.clusters, scored.clusters);
}

#[tokio::test]
async fn a_lone_document_is_judged_by_its_spans_and_rows_are_kept_apart() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job_of(&request(&["a", "b"])).await;
    ledger
        .commit_plan(worker, &new_plan(&[&[64], &[7, 9, 3]]))
        .await;
    // The clusters of the lone document are spans; the made-up worker's are documents.
    let spans = |shard: &ShardClaim| {
        let layout = assay_scoring::ClusterLayout::of(&[64]);
        crate::support::compute_by(shard, |window, token| match shard.dataset {
            0 => layout.cluster(0, token),
            _ => window.document,
        })
    };
    while let Some(Claim { fence, work, .. }) = ledger.claim(worker).await {
        let Work::Shard(shard) = work else {
            panic!("planned already")
        };
        let counted = ledger.commit(worker, fence, &spans(&shard)).await;
        assert_eq!(counted, CommitOutcome::Counted);
    }
    let found = partial(&ledger, job).await;
    let result = ledger.store.result(job).await.unwrap().unwrap();
    for (found, result) in found.datasets.iter().zip(&result.datasets) {
        assert_eq!(Some(&found.nll_exact), result.nll_exact.as_ref());
        assert_eq!(found.numbers.standard_error, result.standard_error);
    }
    assert_eq!(found.datasets[0].clusters, 50);
    assert!(found.datasets[0].numbers.standard_error.is_some());
    assert_eq!(found.datasets[1].clusters, 3);
}

#[tokio::test]
async fn many_shards_make_fifty_points_at_most() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let lengths: Vec<u64> = (0..120).map(|index| 3 + index % 6).collect();
    let job = ledger.planned(worker, &lengths).await;
    ledger.run_all(worker).await;
    let found = row(&ledger, job).await;
    assert!(found.shards > 50, "{}", found.shards);
    assert!(
        (10..=50).contains(&found.points.len()),
        "{}",
        found.points.len()
    );
    assert_eq!(found.points.last().unwrap().numbers, found.numbers);
}

#[tokio::test]
async fn it_waits_for_no_commit_and_no_commit_for_it() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    let (fence, shard) = ledger.claim_shard(worker).await;
    ledger.commit(worker, fence, &compute(&shard)).await;
    // All that a commit locks, and more.
    let mut other = PgConnection::connect(ledger.database.url()).await.unwrap();
    other.execute("begin").await.unwrap();
    other
        .execute("lock table jobs, attempts, shards, datasets in exclusive mode")
        .await
        .unwrap();
    assert_eq!(row(&ledger, job).await.shards_done, 1);
    other.execute("rollback").await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_not_there_has_none() {
    let ledger = Ledger::fresh().await;
    assert_eq!(ledger.store.partial(Uuid::now_v7()).await.unwrap(), None);
}
