//! A worker that computes made-up numbers, so that jobs come to an end without a model.

use std::time::Duration;

use assay_api::{ModelFacts, TokenizerFacts};
use assay_scoring::{
    Convention, CostModel, DocumentFacts, PlanConstants, Scope, ShardSums, plan, spans_digest,
    to_units,
};
use assay_store::{
    Claim, Claimant, CommitOutcome, NewDatasetPlan, NewPlan, NewWorker, PlanFacts, ShardClaim,
    ShardOutcome, SpanToken, Store, TokenSpan, Work,
};
use uuid::Uuid;

const LEASE: Duration = Duration::from_mins(5);

/// The NLL of a token of a stream, in nats.
pub(crate) fn nll(stream: u32, token: u64) -> f64 {
    f64::from(stream) + 1.0 / (token as f64 + 2.0)
}

/// Runs the one job there is, whose rows have these lengths of documents and conventions.
pub(crate) async fn run(store: &Store, rows: &[(&[u64], Convention)]) {
    let id = Uuid::now_v7();
    let worker = NewWorker {
        id,
        name: "made-up",
        version: "test",
        devices: &[],
    };
    store.register_worker(&worker, LEASE, None).await.unwrap();
    let claimant = Claimant {
        worker: id,
        device: "cpu:0",
        device_kind: "test",
        lease: LEASE,
        rate: None,
    };
    while let Some(claim) = store.claim(&claimant, None).await.unwrap().pop() {
        let Claim { fence, work, .. } = claim;
        let done = match work {
            Work::Plan(_) => store.commit_plan(id, fence, &new_plan(rows)).await.unwrap(),
            Work::Shard(shard) => {
                let (lengths, convention) = rows[shard.dataset as usize];
                let outcome = compute(&shard, lengths, convention);
                let counted = store.commit_shards(id, &[(fence, &outcome)]).await.unwrap();
                counted == [CommitOutcome::Counted]
            }
        };
        assert!(done);
    }
}

fn new_plan(rows: &[(&[u64], Convention)]) -> NewPlan {
    let cost = CostModel {
        linear_flops_per_token: 1.0,
        attention_flops_per_pair: 0.0,
    };
    let constants = PlanConstants {
        micro_batch_tokens: 4,
        ..PlanConstants::default()
    };
    let scopes: Vec<Scope<'_>> = rows
        .iter()
        .map(|(lengths, convention)| Scope {
            convention: *convention,
            lengths,
            prefix: !convention.is_joined(),
            counted: None,
        })
        .collect();
    let plans = plan(&scopes, &cost, &constants).unwrap();
    let facts = |&tokens: &u64| DocumentFacts {
        tokens,
        bytes: tokens,
        words: tokens,
    };
    NewPlan {
        facts: PlanFacts {
            rate_key: None,
            model: ModelFacts {
                path: "llama_gqa".to_owned(),
                adapter: None,
                family: "llama".to_owned(),
                parameters: 1,
                digest: "sha256:0".to_owned(),
            },
            tokenizer: TokenizerFacts {
                digest: "sha256:1".to_owned(),
                adds_bos: false,
                first_token_ids: vec![0],
                chat_template: None,
            },
            constants,
            version: "test".to_owned(),
            numerics_version: 1,
            warnings: vec![],
        },
        datasets: rows
            .iter()
            .zip(plans)
            .map(|((lengths, convention), plan)| NewDatasetPlan {
                digest: "sha256:2".to_owned(),
                tokens_digest: "sha256:3".to_owned(),
                prefix: (!convention.is_joined()).then_some(0),
                text_measures: !convention.is_joined(),
                content_key: format!("{convention:?} {lengths:?}"),
                groups: None,
                warnings: vec![],
                documents: lengths.iter().map(facts).collect(),
                plan,
            })
            .collect(),
    }
}

fn compute(shard: &ShardClaim, lengths: &[u64], convention: Convention) -> ShardOutcome {
    let mut sums = ShardSums::default();
    let mut tokens = Vec::new();
    for window in shard.micro_batches.iter().flat_map(|batch| &batch.0) {
        let mut span = TokenSpan {
            stream: window.document,
            first: window.from,
            tokens: Vec::new(),
        };
        for token in window.from..window.to {
            let owner = if convention.is_joined() {
                owner(lengths, token)
            } else {
                window.document
            };
            let nll = nll(window.document, token);
            sums.add(owner, nll).unwrap();
            let at = u32::try_from(token).unwrap();
            span.tokens.push(SpanToken {
                id: 100 + at,
                bytes: at..at + 1,
                units: Some(to_units(nll).unwrap()),
            });
        }
        tokens.push(span);
    }
    ShardOutcome {
        spans_digest: spans_digest(&shard.micro_batches),
        computed_tokens: sums.scored(),
        sums: sums.into_vec(),
        tokens,
        seconds: 0.5,
        split_depth: 0,
        dtype: None,
        compared: None,
        claim_seconds: 0.0,
        load_seconds: 0.0,
        commit_seconds: 0.0,
    }
}

/// The document that owns a token of the joined text.
fn owner(lengths: &[u64], token: u64) -> u32 {
    let mut end = 0;
    let owner = lengths.iter().position(|length| {
        end += length;
        token < end
    });
    u32::try_from(owner.expect("the text has the token")).unwrap()
}
