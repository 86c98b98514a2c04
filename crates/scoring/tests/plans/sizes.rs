//! What [`PlanConstants`] promise about sizes.

use assay_scoring::{DatasetPlan, MicroBatch, PlanConstants, ShardPlan};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::row::{COST, windows};

fn tokens(batch: &MicroBatch) -> u32 {
    batch.0.iter().map(|w| w.len).sum()
}

fn flops(batch: &MicroBatch) -> f64 {
    batch.0.iter().map(|w| COST.window(w)).sum()
}

/// No micro-batch is over its budget but a single window, none could have taken the next window,
/// and budgets fall from `micro_batch_tokens` to `tail_micro_batch_tokens`.
pub(crate) fn check_micro_batches(
    plan: &DatasetPlan,
    constants: &PlanConstants,
) -> Result<(), TestCaseError> {
    let batches: Vec<&MicroBatch> = plan.shards.iter().flat_map(|s| &s.micro_batches).collect();
    let mut left: u32 = windows(plan).map(|w| w.len).sum();
    let mut last = u32::MAX;
    for (index, &batch) in batches.iter().enumerate() {
        let most = constants.micro_batch_tokens;
        let budget = match constants.tail_divisor {
            0 => most,
            divisor => (left / divisor).clamp(constants.tail_micro_batch_tokens.min(most), most),
        };
        prop_assert!(budget <= last);
        prop_assert!(tokens(batch) <= budget || batch.0.len() == 1);
        if let Some(next) = batches.get(index + 1) {
            prop_assert!(tokens(batch) + next.0[0].len > budget);
        }
        left -= tokens(batch);
        last = budget;
    }
    Ok(())
}

/// Shards come nearer to their size by no micro-batch more or less, and their sizes fall.
pub(crate) fn check_shards(
    plan: &DatasetPlan,
    constants: &PlanConstants,
    job: f64,
) -> Result<(), TestCaseError> {
    let row: f64 = windows(plan).map(|w| COST.window(w)).sum();
    let most = (job / f64::from(constants.max_shards)).min(constants.max_shard_flops);
    let (mut left, mut last) = (row, f64::INFINITY);
    for (index, shard) in plan.shards.iter().enumerate() {
        let size = match constants.tail_divisor {
            0 => most,
            divisor => most.min(job * (left / row) / f64::from(divisor)),
        };
        prop_assert!(size <= last);
        // Sums in another order than the plan's differ in the last digits.
        let slack = 1e-9 * row;
        let sum: f64 = shard.micro_batches.iter().map(flops).sum();
        prop_assert!((shard.flops - sum).abs() <= slack);
        let batches = &shard.micro_batches;
        let taken = flops(&batches[batches.len() - 1]);
        prop_assert!(batches.len() == 1 || sum - taken / 2.0 < size + slack);
        if let Some(ShardPlan { micro_batches, .. }) = plan.shards.get(index + 1) {
            prop_assert!(sum + flops(&micro_batches[0]) / 2.0 >= size - slack);
        }
        left -= sum;
        last = size;
    }
    Ok(())
}
