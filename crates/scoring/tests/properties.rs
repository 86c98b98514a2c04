//! What must hold of every plan and of every sum.

// Generated sizes are small.
#![allow(clippy::cast_possible_truncation)]

use assay_scoring::{
    ClusterLayout, CostModel, DatasetPlan, ExactSum, MicroBatch, PlanConstants, PlanError,
    ShardPlan, ShardSums, Window, document_sums, plan, rolling, spans_digest, to_units,
    verify_spans,
};
use proptest::prelude::*;

const COST: CostModel = CostModel {
    linear_flops_per_token: 1000.0,
    attention_flops_per_pair: 10.0,
};

fn datasets() -> impl Strategy<Value = Vec<Vec<u64>>> {
    let document = prop_oneof![3 => 0_u64..40, 1 => 0_u64..400];
    let dataset = prop::collection::vec(document, 1..12)
        .prop_filter("a dataset has a token", |lengths| {
            lengths.iter().any(|&n| n > 0)
        });
    prop::collection::vec(dataset, 1..4)
}

fn constants() -> impl Strategy<Value = PlanConstants> {
    (1_u32..200, 1_u32..20, 1e3..1e7).prop_map(|(micro_batch_tokens, max_shards, flops)| {
        PlanConstants {
            micro_batch_tokens,
            max_shards,
            max_shard_flops: flops,
        }
    })
}

fn planned(
    datasets: &[Vec<u64>],
    window: u32,
    constants: &PlanConstants,
) -> Result<Vec<DatasetPlan>, PlanError> {
    let lengths: Vec<&[u64]> = datasets.iter().map(Vec::as_slice).collect();
    plan(&lengths, window, &COST, constants)
}

fn windows(plan: &DatasetPlan) -> impl Iterator<Item = &Window> {
    plan.shards
        .iter()
        .flat_map(|s| &s.micro_batches)
        .flat_map(|m| &m.0)
}

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

/// Units by integer arithmetic on the bits of the double.
fn units_reference(nll: f64) -> i128 {
    let bits = nll.to_bits();
    let exponent = i64::try_from(bits >> 52 & 0x7ff).unwrap();
    let fraction = i128::from(bits & ((1 << 52) - 1));
    let mantissa = if exponent == 0 {
        fraction
    } else {
        fraction | 1 << 52
    };
    // |nll| * 2^32 = mantissa * 2^shift.
    let shift = exponent.max(1) - 1075 + 32;
    let magnitude = if shift >= 0 {
        mantissa << shift
    } else if shift < -60 {
        0
    } else {
        let divisor = 1_i128 << -shift;
        let (quotient, twice) = (mantissa / divisor, mantissa % divisor * 2);
        let up = twice > divisor || twice == divisor && quotient % 2 == 1;
        quotient + i128::from(up)
    };
    if nll.is_sign_negative() {
        -magnitude
    } else {
        magnitude
    }
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

    #[test]
    fn plans_count_every_token_once(
        datasets in datasets(), window in 1_u32..70, constants in constants(),
    ) {
        let plans = planned(&datasets, window, &constants).unwrap();
        for (index, (lengths, plan)) in datasets.iter().zip(&plans).enumerate() {
            let mut counted: Vec<Vec<u32>> =
                lengths.iter().map(|&n| vec![0; n as usize]).collect();
            for w in windows(plan) {
                for token in w.from..w.to {
                    counted[w.document as usize][token as usize] += 1;
                }
            }
            prop_assert!(counted.iter().flatten().all(|&n| n == 1));
            prop_assert_eq!(plan.scored_tokens, lengths.iter().sum::<u64>());
            prop_assert_eq!(verify_spans(lengths, &plan.shards), Ok(()));
            for shard in &plan.shards {
                prop_assert_eq!(shard.dataset as usize, index);
                prop_assert_eq!(&shard.spans_digest, &spans_digest(&shard.micro_batches));
            }
        }
    }

    #[test]
    fn plans_keep_to_their_sizes(
        datasets in datasets(), window in 1_u32..70, constants in constants(),
    ) {
        let plans = planned(&datasets, window, &constants).unwrap();
        let cost = |m: &MicroBatch| m.0.iter().map(|w| COST.window(w)).sum::<f64>();
        let job: f64 = plans.iter().flat_map(windows).map(|w| COST.window(w)).sum();
        let target = (job / f64::from(constants.max_shards)).min(constants.max_shard_flops);
        for plan in &plans {
            let order: Vec<_> =
                windows(plan).map(|w| (std::cmp::Reverse(w.len), w.document, w.start)).collect();
            prop_assert!(order.is_sorted());

            let batches: Vec<&MicroBatch> =
                plan.shards.iter().flat_map(|s| &s.micro_batches).collect();
            for pair in batches.windows(2) {
                let tokens: u32 = pair[0].0.iter().map(|w| w.len).sum();
                prop_assert!(tokens <= constants.micro_batch_tokens || pair[0].0.len() == 1);
                prop_assert!(tokens + pair[1].0[0].len > constants.micro_batch_tokens);
            }
            let last = batches.last().unwrap();
            let tokens: u32 = last.0.iter().map(|w| w.len).sum();
            prop_assert!(tokens <= constants.micro_batch_tokens || last.0.len() == 1);

            let (_, full) = plan.shards.split_last().unwrap();
            for shard in full {
                let flops: f64 = shard.micro_batches.iter().map(cost).sum();
                let before = flops - cost(shard.micro_batches.last().unwrap());
                prop_assert!(flops >= target && before < target);
                prop_assert!((shard.flops / flops - 1.0).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn plans_follow_from_their_inputs(
        datasets in datasets(), window in 1_u32..70, constants in constants(),
    ) {
        let plans = planned(&datasets, window, &constants).unwrap();
        prop_assert_eq!(&planned(&datasets, window, &constants).unwrap(), &plans);
        let json = serde_json::to_string(&plans).unwrap();
        let back: Vec<DatasetPlan> = serde_json::from_str(&json).unwrap();
        for (a, b) in back.iter().zip(&plans) {
            prop_assert!(windows(a).eq(windows(b)));
        }
    }

    #[test]
    fn a_plan_with_a_fault_is_refused(
        datasets in datasets(), window in 1_u32..70, constants in constants(),
        shard in any::<prop::sample::Index>(), batch in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(), by in prop_oneof![Just(-1_i64), Just(1_i64)],
    ) {
        let lengths = &datasets[0];
        let shards = planned(&datasets, window, &constants).unwrap().remove(0).shards;
        let fault = |edit: &dyn Fn(&mut Vec<Window>, usize)| {
            let mut shards: Vec<ShardPlan> = shards.clone();
            let shard = shard.get_mut(&mut shards);
            let windows = &mut batch.get_mut(&mut shard.micro_batches).0;
            let place = place.index(windows.len());
            edit(windows, place);
            // The count is made to agree, so that only the spans can give the fault away.
            let all = shard.micro_batches.iter().flat_map(|m| &m.0);
            shard.scored_tokens = all.map(Window::scored).sum();
            verify_spans(lengths, &shards)
        };
        let dropped = fault(&|windows, i| { windows.remove(i); });
        prop_assert!(matches!(dropped, Err(PlanError::NotCounted { .. })), "{dropped:?}");
        let twice = fault(&|windows, i| windows.push(windows[i]));
        prop_assert!(matches!(twice, Err(PlanError::CountedTwice { .. })), "{twice:?}");
        let shifted = fault(&|windows, i| {
            let w = &mut windows[i];
            w.start += by;
            w.from = w.from.wrapping_add_signed(by);
            w.to = w.to.wrapping_add_signed(by);
        });
        prop_assert!(shifted.is_err());
        let cut = fault(&|windows, i| windows[i].to -= 1);
        prop_assert!(matches!(cut, Err(PlanError::NotCounted { .. })), "{cut:?}");
        let elsewhere = fault(&|windows, i| windows[i].document = lengths.len() as u32);
        prop_assert!(matches!(elsewhere, Err(PlanError::UnknownDocument { .. })), "{elsewhere:?}");

        let mut claimed = shards.clone();
        shard.get_mut(&mut claimed).scored_tokens += 1;
        let result = verify_spans(lengths, &claimed);
        prop_assert!(matches!(result, Err(PlanError::CountDiffers { .. })), "{result:?}");
    }

    #[test]
    fn units_round_half_to_even(
        nll in prop_oneof![
            -2_147_483_648.0..2_147_483_648.0_f64,
            0.0..20.0_f64,
            (0_u64..1 << 40).prop_map(|halves| halves as f64 / 2.0 / 4_294_967_296.0),
            prop::num::f64::ANY.prop_filter("in range", |x| x.abs() < 2_147_483_648.0),
        ],
    ) {
        prop_assert_eq!(i128::from(to_units(nll).unwrap()), units_reference(nll));
    }

    #[test]
    fn nats_are_correctly_rounded(units in -(1_i128 << 94)..1_i128 << 94, drop in 0_u32..94) {
        let units = units >> drop;
        let sum: ExactSum = units.to_string().parse().unwrap();
        let nats = sum.nats();
        // The distance of a double to the sum, in units of 2^-64 nat to have room for halves.
        let distance = |x: f64| ((x * 18_446_744_073_709_551_616.0) as i128 - (units << 32)).abs();
        if units.unsigned_abs() < 1 << 53 {
            prop_assert_eq!(distance(nats), 0);
        } else {
            for neighbour in [nats.next_up(), nats.next_down()] {
                let closer = distance(neighbour) > distance(nats);
                let even = distance(neighbour) == distance(nats) && nats.to_bits().is_multiple_of(2);
                prop_assert!(closer || even, "{units}: {nats} against {neighbour}");
            }
        }
    }

    #[test]
    fn sums_have_no_order(
        tokens in prop::collection::vec((0_u32..6, -1.0..1e6_f64), 1..200),
        parts in prop::collection::vec(any::<prop::sample::Index>(), 200),
        count in 1_usize..9, seed in any::<u64>(),
    ) {
        let mut whole = ShardSums::default();
        let mut split = vec![ShardSums::default(); count];
        for (&(cluster, nll), part) in tokens.iter().zip(&parts) {
            whole.add(cluster, nll).unwrap();
            part.get_mut(&mut split).add(cluster, nll).unwrap();
        }
        let from = seed as usize % count;
        split.rotate_left(from);
        let mut merged = ShardSums::default();
        for part in &split {
            merged.merge(part).unwrap();
        }
        prop_assert_eq!(&merged, &whole);
        prop_assert_eq!(whole.scored(), tokens.len() as u64);

        let of_parts: ExactSum = split
            .into_iter()
            .rev()
            .flat_map(ShardSums::into_vec)
            .map(|sum| ExactSum::from(sum.units))
            .sum();
        let of_tokens: ExactSum =
            tokens.iter().map(|t| ExactSum::from(to_units(t.1).unwrap())).sum();
        prop_assert_eq!(of_parts, of_tokens);
    }

    #[test]
    fn clusters_cover_their_documents(lengths in prop::collection::vec(0_u64..300, 1..5)) {
        let layout = ClusterLayout::of(&lengths);
        let mut clusters = vec![(ExactSum::default(), 0_u64); layout.len() as usize];
        for (document, &tokens) in (0_u32..).zip(&lengths) {
            for token in 0..tokens {
                let (sum, scored) = &mut clusters[layout.cluster(document, token) as usize];
                *sum += ExactSum::from(i64::from(document) + 1);
                *scored += 1;
            }
        }
        let expected: Vec<_> = (1_i64..)
            .zip(&lengths)
            .map(|(value, &n)| (ExactSum::from(value * n.cast_signed()), n))
            .collect();
        prop_assert_eq!(document_sums(&layout, &clusters), expected);
        if lengths.iter().filter(|&&n| n > 0).count() == 1 {
            let scored: Vec<u64> = clusters.iter().map(|c| c.1).collect();
            let (least, most) = (scored.iter().min().unwrap(), scored.iter().max().unwrap());
            prop_assert!(*least >= 1 && most - least <= 1);
        }
    }
}
