//! Rolling windows against lm-evaluation-harness, and plans that may not move by a bit.

// Generated sizes are small.
#![allow(clippy::cast_possible_truncation)]

use assay_scoring::{
    Convention, CostModel, DatasetPlan, MicroBatch, PlanConstants, Scope, Window, plan, rolling,
    spans_digest,
};
use proptest::prelude::*;

/// lm-evaluation-harness's `get_rolling_token_windows(tokens, prefix, max_seq_len, context_len=1)`,
/// `make_disjoint_window` and the slice its models feed, line by line: (input, targets).
fn harness(tokens: &[i64], prefix: i64, max_seq_len: usize) -> Vec<(Vec<i64>, Vec<i64>)> {
    let context_len = 1;
    let mut pairs = Vec::new();
    if tokens.is_empty() {
        return pairs;
    }
    let pred_len = max_seq_len - context_len + 1;
    let first_seq_len = max_seq_len.min(tokens.len());
    let first = [&[prefix], &tokens[..first_seq_len - 1]].concat();
    pairs.push((first, tokens[..first_seq_len].to_vec()));
    let mut predicted = first_seq_len;
    while predicted < tokens.len() {
        let window_pred_len = pred_len.min(tokens.len() - predicted);
        let window_end = predicted + window_pred_len;
        pairs.push((
            tokens[window_end - max_seq_len - 1..window_end - 1].to_vec(),
            tokens[window_end - window_pred_len..window_end].to_vec(),
        ));
        predicted += window_pred_len;
    }
    pairs
        .into_iter()
        .map(|(input, targets)| {
            let context = &input[..input.len() - (targets.len() - 1)];
            let whole = [context, &targets].concat();
            let cut = whole.len().saturating_sub(max_seq_len + 1);
            (whole[cut..whole.len() - 1].to_vec(), targets)
        })
        .collect()
}

proptest! {
    #[test]
    fn windows_are_the_harness_ones(tokens in 0_u32..300, window in 1_u32..70) {
        let ids: Vec<i64> = (0..i64::from(tokens)).collect();
        let ours: Vec<_> = rolling(0, tokens.into(), window)
            .map(|w| {
                let input: Vec<i64> = (w.start..w.start + i64::from(w.len)).collect();
                let targets: Vec<i64> = (w.from.cast_signed()..w.to.cast_signed()).collect();
                (input, targets)
            })
            .collect();
        prop_assert_eq!(ours, harness(&ids, -1, window as usize));
    }

    #[test]
    fn windows_lie_in_their_document(tokens in 1_u64..500, window in 1_u32..70) {
        let all: Vec<Window> = rolling(0, tokens, window).collect();
        for w in &all {
            let end = w.start + i64::from(w.len);
            prop_assert!(w.len >= 1 && w.len <= window);
            prop_assert!(w.start >= -1 && end < tokens.cast_signed());
            prop_assert!(w.start < w.from.cast_signed() && w.from < w.to);
            prop_assert!(w.to.cast_signed() <= end + 1);
        }
        // The last, shorter span keeps a full window of input where the document has one.
        let last = all.last().unwrap();
        prop_assert_eq!(u64::from(last.len), tokens.min(window.into()));
    }
}

/// Rows of pseudorandom lengths, planned with prefixes: (micro-batches' digest, shards).
fn planned(window: u32, tail_divisor: u32) -> (String, Vec<DatasetPlan>) {
    let mut seed = 12_345_u64;
    let mut next = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let many: Vec<u64> = (0..300).map(|_| next() % 700).collect();
    let scope = |lengths| Scope {
        convention: Convention::Rolling { window },
        lengths,
        prefix: true,
        counted: None,
    };
    let constants = PlanConstants {
        micro_batch_tokens: 512,
        max_shards: 7,
        max_shard_flops: 4e15,
        tail_divisor,
        tail_micro_batch_tokens: 128,
    };
    let cost = CostModel {
        linear_flops_per_token: 1000.0,
        attention_flops_per_pair: 10.0,
    };
    let plans = plan(&[scope(&many), scope(&[0, 5000, 0])], &cost, &constants).unwrap();
    let shards = plans.iter().flat_map(|plan| &plan.shards);
    let all: Vec<MicroBatch> = shards.flat_map(|s| s.micro_batches.clone()).collect();
    (spans_digest(&all), plans)
}

/// Digests of plans without a tail, those of version 0.1. A change of them is a change of results: see
/// [`assay_scoring::NUMERICS_VERSION`].
#[test]
fn plans_do_not_move() {
    for (window, digest, shards, flops, lone) in [
        (
            1,
            "sha256:a94130ae6e3e40044f53594f3fcc3f06ed008cd55a133abfc4af38690476b30d",
            7,
            109_087_070.0,
            "sha256:85be843d0dbed862cc16f6a4f04ec1f41ac161e918c811bf38af90c9a4bb6d33",
        ),
        (
            64,
            "sha256:5d77702f1d4f3149d14a13110475203ff93b76b15714b29a0bdd6e3aff1d5524",
            7,
            154_551_260.0,
            "sha256:68bed9cbdf5bce4f48807ad82e88774b816c27dafc547c46c4894b5c1f82e203",
        ),
        (
            2048,
            "sha256:25003c546cf0106335b9a980249018b3e18f7db9be2593c490d8a6255dd5e893",
            6,
            363_900_850.0,
            "sha256:110fa8fa2f4a46bf98cc695bd7a511245654da8e5ce16cf3ecc77f89b86945f8",
        ),
    ] {
        let (all, plans) = planned(window, 0);
        assert_eq!(all, digest, "window {window}");
        assert_eq!(plans[0].shards.len(), shards, "window {window}");
        let total: f64 = plans[0].shards.iter().map(|shard| shard.flops).sum();
        assert!((total - flops).abs() < 1e-3, "window {window}: {total}");
        assert_eq!(plans[1].shards[0].spans_digest, lone, "window {window}");
        assert_eq!(
            serde_json::to_string(&plans[1].clusters).unwrap(),
            r#"{"by":"spans","document":1,"documents":3,"tokens":5000,"spans":50}"#
        );
    }
}

/// The same of plans whose sizes fall towards the end, as those of version 2 of the numbers do.
#[test]
fn falling_sizes_do_not_move() {
    for (window, digest, shards) in [
        (
            1,
            "sha256:4bbe4ca122ace214afccd116efcfec8df61c922011efff42219ab59793101b46",
            562,
        ),
        (
            64,
            "sha256:eb004a7a66eb4a6c48caa3349ce37eef2a9389d020ea96a8766413eb2bafa274",
            624,
        ),
        (
            2048,
            "sha256:62aab1e2b4c5ffd06d41d9db6074835dc1a95cf24d06a8e87032603a3282191a",
            281,
        ),
    ] {
        let (all, plans) = planned(window, 256);
        assert_eq!(
            (all.as_str(), plans[0].shards.len()),
            (digest, shards),
            "window {window}"
        );
    }
}
