//! What must hold of every plan, whatever its convention, sizes and masks.

mod faults;
mod row;
mod sizes;

use assay_scoring::{
    ClusterLayout, Convention, DatasetPlan, MicroBatch, PlanConstants, PlanError, spans_digest,
    verify_spans,
};
use proptest::prelude::*;
use row::{COST, constants, plannable, planned, rows, windows};

proptest! {
    #[test]
    fn plans_count_what_the_convention_counts(
        rows in prop::collection::vec(plannable(), 1..4), constants in constants(),
    ) {
        let plans = planned(&rows, &constants).unwrap();
        for (index, (row, plan)) in rows.iter().zip(&plans).enumerate() {
            let mut counted: Vec<(u32, u64)> = Vec::new();
            for w in windows(plan) {
                let targets = (w.from..w.to).filter(|&token| row.may_count(w.document, token));
                let before = counted.len();
                counted.extend(targets.map(|token| (w.document, token)));
                prop_assert!(counted.len() > before, "nothing of {:?} counts", w);
                prop_assert!(w.scored() >= (counted.len() - before) as u64);
            }
            counted.sort_unstable();
            let expected = row.expected();
            let streams: Vec<(u32, u64)> = expected
                .iter()
                .map(|&(owner, token)| {
                    (if row.convention.is_joined() { 0 } else { owner }, token)
                })
                .collect();
            prop_assert_eq!(&counted, &streams);
            prop_assert_eq!(plan.scored_tokens, expected.len() as u64);
            prop_assert_eq!(verify_spans(&row.scope(), &plan.shards), Ok(()));
            for shard in &plan.shards {
                prop_assert_eq!(shard.dataset as usize, index);
                prop_assert_eq!(&shard.spans_digest, &spans_digest(&shard.micro_batches));
            }
        }
    }

    #[test]
    fn a_row_of_which_nothing_counts_is_refused(row in rows()) {
        let result = planned(std::slice::from_ref(&row), &PlanConstants::default());
        if row.expected().is_empty() {
            let nothing = PlanError::NothingToScore {
                dataset: 0,
                convention: row.convention,
                masked: row.counted.is_some(),
            };
            prop_assert_eq!(result, Err(nothing));
        } else {
            prop_assert!(result.is_ok(), "{:?}", result);
        }
    }

    /// Each counted token is predicted from what its convention feeds before it.
    #[test]
    fn targets_have_the_context_of_their_convention(row in plannable()) {
        let plan = planned(std::slice::from_ref(&row), &PlanConstants::default())
            .unwrap()
            .remove(0);
        for w in windows(&plan) {
            prop_assert!(w.len <= row.convention.window());
            let start = w.start + i64::from(row.prefix);
            prop_assert!(start >= 0);
            match row.convention {
                // One token of context at least, and a full window where there is one.
                Convention::Rolling { window } => {
                    let end = w.start + i64::from(w.len);
                    prop_assert_eq!(end + 1, w.to.cast_signed());
                    prop_assert!(w.len == window || start == 0);
                }
                Convention::Blocks { window, .. } | Convention::LlamaCpp { window } => {
                    prop_assert_eq!(start % i64::from(window), 0);
                }
                Convention::Strided { window, stride } => {
                    prop_assert_eq!(start % i64::from(stride), 0);
                    let context = w.from.cast_signed() - w.start;
                    let least = if start == 0 { 1 } else { window - stride };
                    prop_assert_eq!(context, i64::from(least));
                }
            }
        }
    }

    #[test]
    fn plans_keep_to_their_sizes(
        rows in prop::collection::vec(plannable(), 1..4), constants in constants(),
    ) {
        let plans = planned(&rows, &constants).unwrap();
        let job: f64 = plans.iter().flat_map(windows).map(|w| COST.window(w)).sum();
        for plan in &plans {
            let order: Vec<_> =
                windows(plan).map(|w| (std::cmp::Reverse(w.len), w.document, w.start)).collect();
            prop_assert!(order.is_sorted());
            sizes::check_micro_batches(plan, &constants)?;
            sizes::check_shards(plan, &constants, job)?;
        }
    }

    #[test]
    fn plans_follow_from_their_inputs(row in plannable(), constants in constants()) {
        let rows = [row];
        let plans = planned(&rows, &constants).unwrap();
        prop_assert_eq!(&planned(&rows, &constants).unwrap(), &plans);
        let json = serde_json::to_string(&plans).unwrap();
        let back: Vec<DatasetPlan> = serde_json::from_str(&json).unwrap();
        for (a, b) in back.iter().zip(&plans) {
            prop_assert!(windows(a).eq(windows(b)));
            prop_assert_eq!(&a.clusters, &b.clusters);
        }
    }

    /// A row's micro-batches, and so its bits, do not depend on what else is in the job.
    #[test]
    fn company_moves_no_micro_batch(
        rows in prop::collection::vec(plannable(), 2..4), constants in constants(),
    ) {
        let batches = |plan: &DatasetPlan| -> Vec<MicroBatch> {
            plan.shards.iter().flat_map(|s| s.micro_batches.clone()).collect()
        };
        let together = planned(&rows, &constants).unwrap();
        for (row, plan) in rows.iter().zip(&together) {
            let alone = planned(std::slice::from_ref(row), &constants).unwrap();
            prop_assert_eq!(batches(&alone[0]), batches(plan));
        }
    }

    #[test]
    fn clusters_hold_what_their_documents_count(row in plannable()) {
        let plan = planned(std::slice::from_ref(&row), &PlanConstants::default())
            .unwrap()
            .remove(0);
        let expected = row.expected();
        let mut scored = vec![0_u64; plan.clusters.len() as usize];
        for &(owner, token) in &expected {
            scored[plan.clusters.cluster(owner, token) as usize] += 1;
        }
        let owners: std::collections::BTreeSet<u32> =
            expected.iter().map(|&(owner, _)| owner).collect();
        match plan.clusters {
            ClusterLayout::Documents { documents } => {
                prop_assert!(owners.len() > 1);
                prop_assert_eq!(documents as usize, row.lengths.len());
            }
            ClusterLayout::Spans { document, documents, first, tokens, spans } => {
                prop_assert_eq!(owners.into_iter().collect::<Vec<_>>(), [document]);
                prop_assert_eq!(documents as usize, row.lengths.len());
                let (least, most) = (expected[0].1, expected[expected.len() - 1].1);
                prop_assert_eq!((first, first + tokens), (least, most + 1));
                prop_assert_eq!(u64::from(spans), (expected.len() as u64).min(50));
                // Contiguous, from the first to the last.
                let order: Vec<u32> = expected
                    .iter()
                    .map(|&(owner, token)| plan.clusters.cluster(owner, token))
                    .collect();
                prop_assert!(order.is_sorted() && order[0] == 0);
                prop_assert_eq!(order[order.len() - 1], spans - 1);
            }
        }
    }
}
