//! How large micro-batches and shards are.

use serde::{Deserialize, Serialize};

use crate::plan::{CostModel, MicroBatch, ShardPlan};
use crate::scope::{Scope, tokens};
use crate::window::Window;

/// The sizes a plan is cut by. They decide which bits come out, so results record them.
///
/// Whoever is free claims the largest shard that is left, so the last ones should be small: then
/// all devices end at about the same time. Therefore the shards of a dataset become smaller with
/// what remains of it, down to a micro-batch, and the micro-batches with them. Small ones use a
/// device less well, which is why only the end consists of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanConstants {
    /// Input tokens of a micro-batch at most; one window may exceed it, alone.
    pub micro_batch_tokens: u32,
    /// A shard has one part in so many of the job's operations at most, to half a micro-batch. With
    /// a tail there are more shards than that.
    pub max_shards: u32,
    /// Operations that are enough for a shard, however many shards that makes.
    pub max_shard_flops: f64,
    /// A shard has one part in so many, at most, of the job's operations times the part of its
    /// dataset that is in no earlier shard; a micro-batch one part in so many of the input tokens
    /// of its dataset that are in no earlier micro-batch. 0: neither becomes smaller.
    #[serde(default)]
    pub tail_divisor: u32,
    /// Input tokens that a micro-batch may always hold, however little remains.
    #[serde(default)]
    pub tail_micro_batch_tokens: u32,
}

impl Default for PlanConstants {
    fn default() -> Self {
        Self {
            micro_batch_tokens: 2048,
            max_shards: 512,
            max_shard_flops: 4e15,
            tail_divisor: 256,
            tail_micro_batch_tokens: 512,
        }
    }
}

impl PlanConstants {
    /// Input tokens of the next micro-batch at most, if `left` of its dataset are in none yet.
    fn micro_batch(&self, left: u64) -> u64 {
        let most = u64::from(self.micro_batch_tokens);
        let part = left.checked_div(self.tail_divisor.into()).unwrap_or(most);
        part.max(self.tail_micro_batch_tokens.into()).min(most)
    }

    /// Operations that the next shard should have, if the part `left` of its dataset is in none
    /// yet.
    fn shard(&self, job_flops: f64, left: f64) -> f64 {
        let most = (job_flops / f64::from(self.max_shards)).min(self.max_shard_flops);
        if self.tail_divisor == 0 {
            return most;
        }
        most.min(job_flops * left / f64::from(self.tail_divisor))
    }
}

/// Cuts the windows of a dataset into micro-batches: each takes windows while they fit.
pub(crate) fn cut_micro_batches(
    windows: Vec<Window>,
    constants: &PlanConstants,
) -> Vec<MicroBatch> {
    let mut left: u64 = windows.iter().map(|window| u64::from(window.len)).sum();
    let mut micro_batches: Vec<MicroBatch> = Vec::new();
    let mut room = 0;
    for window in windows {
        let len = u64::from(window.len);
        match micro_batches.last_mut() {
            Some(last) if len <= room => last.0.push(window),
            _ => {
                micro_batches.push(MicroBatch(vec![window]));
                room = constants.micro_batch(left);
            }
        }
        room = room.saturating_sub(len);
        left -= len;
    }
    micro_batches
}

/// Cuts the micro-batches of a dataset into shards: each takes micro-batches until another one
/// would bring it no nearer to its size. Their digests are left empty.
pub(crate) fn cut_shards(
    dataset: u32,
    scope: &Scope<'_>,
    micro_batches: Vec<MicroBatch>,
    cost: &CostModel,
    constants: &PlanConstants,
    job_flops: f64,
) -> Vec<ShardPlan> {
    let flops = |batch: &MicroBatch| batch.0.iter().map(|w| cost.window(w)).sum::<f64>();
    let all: f64 = micro_batches.iter().map(flops).sum();
    let mut shards: Vec<ShardPlan> = Vec::new();
    let (mut done, mut enough) = (0.0, 0.0);
    for micro_batch in micro_batches {
        let flops = flops(&micro_batch);
        let windows = micro_batch.0.iter();
        let scored: u64 = windows
            .map(|w| tokens(scope.counted(w.document as usize, w.from..w.to)))
            .sum();
        match shards.last_mut() {
            Some(last) if last.flops + flops / 2.0 < enough => {
                last.flops += flops;
                last.scored_tokens += scored;
                last.micro_batches.push(micro_batch);
            }
            _ => {
                enough = constants.shard(job_flops, 1.0 - done / all);
                shards.push(ShardPlan {
                    dataset,
                    micro_batches: vec![micro_batch],
                    scored_tokens: scored,
                    flops,
                    spans_digest: String::new(),
                });
            }
        }
        done += flops;
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convention::Convention;
    use crate::plan::plan;

    /// Only tokens cost something, one operation each.
    const COST: CostModel = CostModel {
        linear_flops_per_token: 1.0,
        attention_flops_per_pair: 0.0,
    };

    const FALLING: PlanConstants = PlanConstants {
        micro_batch_tokens: 3,
        max_shards: 5,
        max_shard_flops: 1e9,
        tail_divisor: 4,
        tail_micro_batch_tokens: 2,
    };

    type Sizes = Vec<Vec<usize>>;

    /// Windows of each micro-batch of each shard, of rows of windows of one token.
    fn planned(rows: &[u64], constants: &PlanConstants) -> Sizes {
        let lengths: Vec<[u64; 1]> = rows.iter().map(|&row| [row]).collect();
        let scopes: Vec<Scope<'_>> = lengths
            .iter()
            .map(|lengths| Scope {
                convention: Convention::Rolling { window: 1 },
                lengths,
                prefix: true,
                counted: None,
            })
            .collect();
        let plans = plan(&scopes, &COST, constants).unwrap();
        let shards = plans.iter().flat_map(|plan| &plan.shards);
        shards
            .map(|shard| shard.micro_batches.iter().map(|m| m.0.len()).collect())
            .collect()
    }

    #[test]
    fn sizes_fall_towards_the_end() {
        // A micro-batch takes 3, and 2 where no more than 11 remain. A shard takes 8, a fifth of
        // 40, or a quarter of what remains: 7.75 of 31, 5.5 of 22, 4 of 16, 3.25, 2.5, ..
        let expected: [&[usize]; 10] = [
            &[3, 3, 3],
            &[3, 3, 3],
            &[3, 3],
            &[3],
            &[3],
            &[2],
            &[2],
            &[2],
            &[2],
            &[2],
        ];
        assert_eq!(planned(&[40], &FALLING), expected);
        let even = PlanConstants {
            tail_divisor: 0,
            ..FALLING
        };
        let expected: [&[usize]; 5] = [&[3, 3, 3], &[3, 3, 3], &[3, 3, 3], &[3, 3, 3], &[3, 1]];
        assert_eq!(planned(&[40], &even), expected);
    }

    #[test]
    fn rows_share_the_shards_of_their_job() {
        // As before with half the remains, since the other row has as much again: 8, a quarter of
        // 22, of 10, of 6, of 2.
        let alone: [&[usize]; 5] = [&[3, 3, 3], &[2, 2, 2], &[2], &[2], &[1]];
        assert_eq!(planned(&[20, 20], &FALLING), [alone, alone].concat());
    }

    #[test]
    fn what_an_older_version_stored_means_no_tail() {
        let json = r#"{"micro_batch_tokens": 8, "max_shards": 512, "max_shard_flops": 4e15}"#;
        let constants: PlanConstants = serde_json::from_str(json).unwrap();
        assert_eq!((constants.tail_divisor, constants.micro_batch(1)), (0, 8));
        assert!((constants.shard(512.0, 0.01) - 1.0).abs() < 1e-12);
        let default = PlanConstants::default();
        let json = serde_json::to_string(&default).unwrap();
        assert_eq!(
            serde_json::from_str::<PlanConstants>(&json).unwrap(),
            default
        );
    }

    #[test]
    #[allow(clippy::float_cmp)] // powers of two and ten
    fn sizes_of_new_plans() {
        let default = PlanConstants::default();
        assert_eq!(default.micro_batch(100 << 20), 2048);
        assert_eq!(default.micro_batch(300_000), 300_000 / 256);
        assert_eq!(default.micro_batch(10), 512);
        let sizes = [(512e9, 1.0), (512e9, 0.25), (1e20, 1.0)];
        let sizes = sizes.map(|(job_flops, left)| default.shard(job_flops, left));
        assert_eq!(sizes, [1e9, 0.5e9, 4e15]);
    }
}
