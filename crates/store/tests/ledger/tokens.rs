//! Tokens: kept with the counted attempt, once, and read by document.

use assay_api::{Convention as Named, JobId, JobRequest, JobState, MethodRequest, OneOrMany};
use assay_scoring::Convention;
use assay_store::{CommitOutcome, TokenSpan, Work};
use chrono::{TimeDelta, Utc};
use sqlx::Row;

use crate::support::{LEASE, Ledger, compute, compute_by, plan_of, request, spans, units};

const LENGTHS: &[u64] = &[20, 0, 9, 1, 33];
const ROLLING: Convention = Convention::Rolling { window: 8 };

fn wanted() -> JobRequest {
    JobRequest {
        token_output: true,
        ..request(&["a"])
    }
}

async fn kept(ledger: &Ledger, job: JobId) -> Vec<TokenSpan> {
    ledger
        .store
        .token_spans(job, 0, None, 10_000)
        .await
        .unwrap()
}

#[tokio::test]
async fn tokens_are_kept_once_and_of_the_counted_attempt() {
    let ledger = Ledger::fresh().await;
    let (slow, fast) = (ledger.worker("slow").await, ledger.worker("fast").await);
    let job = ledger.job_of(&wanted()).await;
    assert!(ledger.state(job).await.token_output);
    ledger
        .commit_plan(slow, &plan_of(&[(LENGTHS, ROLLING)]))
        .await;
    let context = ledger.store.run_context(job).await.unwrap().unwrap();
    assert!(context.token_output);

    let (lost, shard) = ledger.claim_shard(slow).await;
    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
    ledger.store.reap(Some(late)).await.unwrap();
    let (fence, _) = ledger.claim_shard(fast).await;
    let mut connection = ledger.database.connect().await;
    let mut stored = async || {
        let row = sqlx::query("select count(*), max(fence) from token_spans")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        (row.get::<i64, _>(0), row.get::<Option<i64>, _>(1))
    };
    let mut outcome = compute(&shard);
    outcome.tokens = spans(&shard);
    let windows = i64::try_from(outcome.tokens.len()).unwrap();
    for (worker, brought, expected) in [
        (slow, lost, (CommitOutcome::Late, (0, None))),
        (
            fast,
            fence,
            (CommitOutcome::Counted, (windows, Some(fence))),
        ),
        (
            fast,
            fence,
            (CommitOutcome::Counted, (windows, Some(fence))),
        ),
        (slow, lost, (CommitOutcome::Late, (windows, Some(fence)))),
    ] {
        let committed = ledger.commit(worker, brought, &outcome).await;
        assert_eq!((committed, stored().await), expected);
    }
    assert!(
        kept(&ledger, job).await.is_empty(),
        "nothing is shown before the end"
    );
    let early = ledger.store.tokens(job, 0, 0, 0, 10).await.unwrap();
    assert!(early.is_empty());

    run_all(&ledger, fast).await;
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
    let spans = kept(&ledger, job).await;
    let counted: u64 = spans.iter().map(|span| span.tokens.len() as u64).sum();
    assert_eq!(counted, 63);
    let order: Vec<_> = spans.iter().map(|s| (s.stream, s.first)).collect();
    assert!(order.is_sorted());
    let behind = ledger.store.token_spans(job, 0, Some(order[2]), 3).await;
    assert_eq!(behind.unwrap(), spans[3..6]);
}

/// Runs all shards of a job that keeps its tokens.
async fn run_all(ledger: &Ledger, worker: assay_api::WorkerId) {
    while let Some(claim) = ledger.claim(worker).await {
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        let mut outcome = compute(&shard);
        outcome.tokens = spans(&shard);
        let committed = ledger.commit(worker, claim.fence, &outcome).await;
        assert_eq!(committed, CommitOutcome::Counted);
    }
}

#[tokio::test]
async fn tokens_page_by_document() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let lengths: &[u64] = &[20, 0, 9, 1, 1000];
    let job = ledger.job_of(&wanted()).await;
    ledger
        .commit_plan(worker, &plan_of(&[(lengths, ROLLING)]))
        .await;
    run_all(&ledger, worker).await;
    for (document, tokens) in (0..).zip(lengths) {
        let mut indices = Vec::new();
        let mut sum = 0;
        loop {
            let from = indices.last().map_or(0, |last| last + 1);
            let page = ledger.store.tokens(job, 0, document, from, 7).await;
            let page = page.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() == 7 || page.last().unwrap().index == tokens - 1);
            for token in page {
                assert_eq!(
                    (token.start, token.end),
                    (2 * token.index, 2 * token.index + 2)
                );
                let units: i64 = token.nll_exact.unwrap().parse().unwrap();
                assert_eq!(
                    units,
                    self::units(u32::try_from(document).unwrap(), token.index)
                );
                sum += units;
                indices.push(token.index);
            }
        }
        assert_eq!(indices, (0..*tokens).collect::<Vec<_>>());
        let row = &ledger.store.documents(job, 0, document, 1).await.unwrap()[0];
        assert_eq!(row.nll_exact, sum.to_string());
    }
    let all = ledger.store.tokens(job, 0, 4, 0, 10_000).await.unwrap();
    assert_eq!(all.len(), 1000);
    for (document, from) in [(0, 20), (0, u64::MAX), (5, 0), (u64::MAX, 0)] {
        let tokens = ledger.store.tokens(job, 0, document, from, 10).await;
        assert!(tokens.unwrap().is_empty(), "{document}, {from}");
    }
    let other_row = ledger.store.tokens(job, 1, 0, 0, 10).await.unwrap();
    assert!(other_row.is_empty());
}

#[tokio::test]
async fn documents_of_a_joined_text_own_their_part_of_it() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    // Document d has the tokens d * (d - 1) / 2 .. of the text; they reach over a chunk's edge.
    let lengths: Vec<u64> = (0..4200).map(|d| d % 5).collect();
    let starts: Vec<u64> = lengths
        .iter()
        .scan(0, |sum, n| Some(std::mem::replace(sum, *sum + n)))
        .collect();
    let owner = |token: u64| starts.partition_point(|start| *start <= token) - 1;
    let blocks = Convention::Blocks {
        window: 8,
        score_tail: false,
    };
    let job = ledger
        .job_of(&JobRequest {
            method: OneOrMany::One(MethodRequest {
                convention: Named::Blocks,
                ..MethodRequest::default()
            }),
            ..wanted()
        })
        .await;
    ledger
        .commit_plan(worker, &plan_of(&[(&lengths, blocks)]))
        .await;
    while let Some(claim) = ledger.claim(worker).await {
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        let mut outcome = compute_by(&shard, |_, token| u32::try_from(owner(token)).unwrap());
        outcome.tokens = spans(&shard);
        let committed = ledger.commit(worker, claim.fence, &outcome).await;
        assert_eq!(committed, CommitOutcome::Counted);
    }
    let total: u64 = lengths.iter().sum();
    for document in [0, 1, 4, 7, 4095, 4096, 4099, 4198, 4199] {
        let (start, tokens) = (starts[document], lengths[document]);
        // The first of each block, and the shorter block at the end, are predicted by no window.
        let expected: Vec<_> = (0..tokens)
            .filter(|index| (start + index) % 8 != 0 && start + index < total / 8 * 8)
            .map(|index| (index, units(0, start + index).to_string()))
            .collect();
        let rows = ledger.store.tokens(job, 0, document as u64, 0, 100).await;
        let rows: Vec<_> = rows
            .unwrap()
            .into_iter()
            .map(|row| (row.index, row.nll_exact.unwrap()))
            .collect();
        assert_eq!(rows, expected, "document {document}");
    }
}

#[tokio::test]
async fn tokens_that_do_not_count_are_kept_without_a_number() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job_of(&wanted()).await;
    let mut plan = plan_of(&[(&[5, 3], ROLLING)]);
    // A mask that leaves out the first token of each document.
    plan.datasets[0].plan.scored_tokens = 6;
    for shard in &mut plan.datasets[0].plan.shards {
        let windows = shard.micro_batches.iter().map(|m| m.0.len() as u64);
        shard.scored_tokens -= windows.sum::<u64>();
    }
    ledger.commit_plan(worker, &plan).await;
    while let Some(claim) = ledger.claim(worker).await {
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        let mut outcome = compute(&shard);
        outcome.tokens = spans(&shard);
        for span in &mut outcome.tokens {
            let units = span.tokens[0].units.take().unwrap();
            let sum = outcome.sums.iter_mut().find(|s| s.cluster == span.stream);
            let sum = sum.unwrap();
            sum.units -= units;
            sum.scored -= 1;
        }
        let committed = ledger.commit(worker, claim.fence, &outcome).await;
        assert_eq!(committed, CommitOutcome::Counted);
    }
    let tokens = ledger.store.tokens(job, 0, 1, 0, 10).await.unwrap();
    let counted: Vec<bool> = tokens.iter().map(|token| token.nll.is_some()).collect();
    assert_eq!(counted, [false, true, true]);
    assert_eq!(tokens[0].nll_exact, None);
}

#[tokio::test]
async fn tokens_that_are_not_the_shards_fail_the_job() {
    for (what, change) in [
        (
            "missing",
            (|tokens| tokens.clear()) as fn(&mut Vec<TokenSpan>),
        ),
        ("other token", |tokens| tokens[0].first += 1),
        ("other document", |tokens| tokens[0].stream += 1),
        ("short", |tokens| tokens[0].tokens.truncate(1)),
        ("twice", |tokens| tokens.push(tokens[0].clone())),
        ("other sum", |tokens| {
            *tokens[0].tokens[0].units.as_mut().unwrap() += 1;
        }),
        ("not counted", |tokens| tokens[0].tokens[0].units = None),
    ] {
        let ledger = Ledger::fresh().await;
        let worker = ledger.worker("w").await;
        let job = ledger.job_of(&wanted()).await;
        let plan = plan_of(&[(LENGTHS, ROLLING)]);
        ledger.commit_plan(worker, &plan).await;
        let (fence, shard) = ledger.claim_shard(worker).await;
        let mut outcome = compute(&shard);
        outcome.tokens = spans(&shard);
        change(&mut outcome.tokens);
        let committed = ledger.commit(worker, fence, &outcome).await;
        assert_eq!(committed, CommitOutcome::Disagrees, "{what}");
        let error = ledger.state(job).await.error.unwrap();
        assert_eq!(error.code, assay_api::ErrorCode::CountsDisagree, "{what}");
    }
}

#[tokio::test]
async fn a_job_that_does_not_keep_tokens_keeps_none() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, LENGTHS).await;
    let (fence, shard) = ledger.claim_shard(worker).await;
    let mut outcome = compute(&shard);
    outcome.tokens = spans(&shard);
    let committed = ledger.commit(worker, fence, &outcome).await;
    assert_eq!(committed, CommitOutcome::Counted);
    ledger.run_all(worker).await;
    assert!(kept(&ledger, job).await.is_empty());
    assert!(!ledger.state(job).await.token_output);
}
