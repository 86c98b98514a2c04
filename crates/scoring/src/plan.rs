//! Plans: windows grouped into micro-batches and shards.

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterLayout;
use crate::cut;
use crate::error::PlanError;
use crate::scope::{Scope, tokens};
use crate::spans::spans_digest;
use crate::verify::verify_spans;
use crate::window::Window;

/// What a model costs, as counts that follow from its configuration. Nothing measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    /// Floating-point operations of all matrix products, per input token.
    pub linear_flops_per_token: f64,
    /// Floating-point operations of attention, per causal pair of query and key.
    pub attention_flops_per_pair: f64,
}

impl CostModel {
    /// Cost of one window: `len` tokens and `len * (len + 1) / 2` pairs.
    pub fn window(&self, window: &Window) -> f64 {
        let len = f64::from(window.len);
        self.linear_flops_per_token * len
            + self.attention_flops_per_pair * (len * (len + 1.0) / 2.0)
    }
}

/// The sizes a plan is cut by. They decide which bits come out, so results record them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanConstants {
    /// Input tokens of a micro-batch at most; one window may exceed it, alone.
    pub micro_batch_tokens: u32,
    /// Shards of a job, about: a shard holds at least this fraction of the job's operations.
    pub max_shards: u32,
    /// Operations that are enough for a shard, however many shards that makes.
    pub max_shard_flops: f64,
}

impl Default for PlanConstants {
    fn default() -> Self {
        Self {
            micro_batch_tokens: 2048,
            max_shards: 512,
            max_shard_flops: 4e15,
        }
    }
}

/// Windows computed in one forward pass, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroBatch(pub Vec<Window>);

/// A list of micro-batches of one dataset: what is queued, leased, retried and committed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardPlan {
    /// Index of the dataset in the job.
    pub dataset: u32,
    /// The micro-batches, in the order they are computed.
    pub micro_batches: Vec<MicroBatch>,
    /// Tokens it counts.
    pub scored_tokens: u64,
    /// Operations it costs by the [`CostModel`].
    pub flops: f64,
    /// [`spans_digest`] of the micro-batches.
    pub spans_digest: String,
}

impl ShardPlan {
    /// Its windows, in the order they are computed.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.micro_batches.iter().flat_map(|batch| &batch.0)
    }
}

/// The plan of one dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetPlan {
    /// Tokens it counts.
    pub scored_tokens: u64,
    /// Its shards; at least one.
    pub shards: Vec<ShardPlan>,
    /// The clusters that its sums are kept by.
    pub clusters: ClusterLayout,
}

/// Plans a job: a plan for each of `scopes`, in their order.
///
/// Within a dataset, windows are sorted by length, longest first, then by document and start, so
/// that those of equal length meet in a micro-batch. They are cut greedily into micro-batches,
/// and consecutive micro-batches into shards of at least
/// `min(job's operations / max_shards, max_shard_flops)`. No shard holds two datasets.
///
/// The plan follows from the arguments alone, and is verified by [`verify_spans`] first.
///
/// # Errors
/// [`PlanError::WindowTooSmall`], [`PlanError::StrideOutOfRange`],
/// [`PlanError::TooManyDocuments`], [`PlanError::CountedInvalid`], [`PlanError::NothingToScore`].
pub fn plan(
    scopes: &[Scope<'_>],
    cost: &CostModel,
    constants: &PlanConstants,
) -> Result<Vec<DatasetPlan>, PlanError> {
    let windows = scopes
        .iter()
        .enumerate()
        .map(|(dataset, scope)| sorted_windows(dataset, scope))
        .collect::<Result<Vec<_>, _>>()?;
    let job_flops: f64 = windows.iter().flatten().map(|w| cost.window(w)).sum();
    let shard_flops = (job_flops / f64::from(constants.max_shards)).min(constants.max_shard_flops);

    (0_u32..)
        .zip(scopes)
        .zip(windows)
        .map(|((dataset, scope), windows)| {
            let micro_batches = cut_micro_batches(windows, constants.micro_batch_tokens);
            let shards = cut_shards(dataset, scope, micro_batches, cost, shard_flops);
            verify_spans(scope, &shards)?;
            Ok(DatasetPlan {
                scored_tokens: shards.iter().map(|shard| shard.scored_tokens).sum(),
                clusters: ClusterLayout::of_windows(
                    scope,
                    shards.iter().flat_map(ShardPlan::windows),
                ),
                shards,
            })
        })
        .collect()
}

fn sorted_windows(dataset: usize, scope: &Scope<'_>) -> Result<Vec<Window>, PlanError> {
    scope.check(dataset)?;
    let mut windows = cut::windows(scope);
    if windows.is_empty() {
        return Err(PlanError::NothingToScore {
            dataset,
            convention: scope.convention,
            masked: scope.counted.is_some(),
        });
    }
    windows.sort_unstable_by_key(|w| (std::cmp::Reverse(w.len), w.document, w.start));
    Ok(windows)
}

fn cut_micro_batches(windows: Vec<Window>, budget: u32) -> Vec<MicroBatch> {
    let mut micro_batches: Vec<MicroBatch> = Vec::new();
    let mut room = 0;
    for window in windows {
        let len = u64::from(window.len);
        match micro_batches.last_mut() {
            Some(last) if len <= room => last.0.push(window),
            _ => {
                micro_batches.push(MicroBatch(vec![window]));
                room = u64::from(budget);
            }
        }
        room = room.saturating_sub(len);
    }
    micro_batches
}

fn cut_shards(
    dataset: u32,
    scope: &Scope<'_>,
    micro_batches: Vec<MicroBatch>,
    cost: &CostModel,
    shard_flops: f64,
) -> Vec<ShardPlan> {
    let mut shards: Vec<ShardPlan> = Vec::new();
    for micro_batch in micro_batches {
        let flops: f64 = micro_batch.0.iter().map(|w| cost.window(w)).sum();
        let windows = micro_batch.0.iter();
        let scored: u64 = windows
            .map(|w| tokens(scope.counted(w.document as usize, w.from..w.to)))
            .sum();
        match shards.last_mut() {
            Some(last) if last.flops < shard_flops => {
                last.flops += flops;
                last.scored_tokens += scored;
                last.micro_batches.push(micro_batch);
            }
            _ => shards.push(ShardPlan {
                dataset,
                micro_batches: vec![micro_batch],
                scored_tokens: scored,
                flops,
                spans_digest: String::new(),
            }),
        }
    }
    for shard in &mut shards {
        shard.spans_digest = spans_digest(&shard.micro_batches);
    }
    shards
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a mask may be one range
mod tests {
    use super::*;
    use crate::convention::Convention;

    const COST: CostModel = CostModel {
        linear_flops_per_token: 10.0,
        attention_flops_per_pair: 1.0,
    };

    fn rolling(window: u32, lengths: &[u64]) -> Scope<'_> {
        Scope {
            convention: Convention::Rolling { window },
            lengths,
            prefix: true,
            counted: None,
        }
    }

    #[test]
    fn plans_by_hand() {
        let constants = PlanConstants {
            micro_batch_tokens: 8,
            max_shards: 2,
            ..PlanConstants::default()
        };
        let scopes = [rolling(4, &[3, 0, 10]), rolling(4, &[2])];
        let plans = plan(&scopes, &COST, &constants).unwrap();

        let windows: Vec<Vec<(u32, i64, u32)>> = plans[0]
            .shards
            .iter()
            .flat_map(|shard| &shard.micro_batches)
            .map(|m| m.0.iter().map(|w| (w.document, w.start, w.len)).collect())
            .collect();
        // Two windows of 4 fill the budget of 8; the window of 3 fits after the third.
        assert_eq!(
            windows,
            [vec![(2, -1, 4), (2, 3, 4)], vec![(2, 5, 4), (0, -1, 3)]]
        );
        // 4 tokens cost 50, 3 cost 36, 2 cost 23: 209 in all, so 104.5 fill a shard.
        assert_eq!(
            plans[0].shards.iter().map(|s| s.flops).collect::<Vec<_>>(),
            [186.0]
        );
        assert_eq!(plans[0].scored_tokens, 13);
        assert_eq!(plans[0].clusters, ClusterLayout::Documents { documents: 3 });
        let second: Vec<_> = plans[1]
            .shards
            .iter()
            .map(|s| (s.dataset, s.flops))
            .collect();
        assert_eq!(second, [(1, 23.0)]);
        assert_eq!(plans[1].clusters.len(), 2);
    }

    #[test]
    fn only_tokens_that_may_count_are_added_up() {
        let masks = [vec![0..1, 5..9], vec![2..3]];
        let scope = Scope {
            counted: Some(&masks),
            ..rolling(4, &[12, 4])
        };
        let plans = plan(&[scope], &COST, &PlanConstants::default()).unwrap();
        assert_eq!(plans[0].scored_tokens, 6);
        let windows: Vec<_> = plans[0].shards[0].windows().collect();
        assert_eq!(windows.len(), 4);
        let flops: Vec<_> = plans[0].shards.iter().map(|s| s.flops).collect();
        assert_eq!(flops, [200.0]);
    }

    #[test]
    fn what_cannot_be_planned_is_an_error() {
        let planned = |scopes: &[Scope<'_>]| plan(scopes, &COST, &PlanConstants::default());
        let error = planned(&[rolling(0, &[1])]).unwrap_err();
        assert!(matches!(error, PlanError::WindowTooSmall { window: 0, .. }));
        let error = planned(&[rolling(4, &[1]), rolling(4, &[0, 0])]).unwrap_err();
        assert!(matches!(
            error,
            PlanError::NothingToScore { dataset: 1, .. }
        ));
        let chat = Scope {
            prefix: false,
            ..rolling(4, &[1, 1])
        };
        assert!(planned(&[chat]).is_err(), "the first token is context");
        let blocks = Scope {
            convention: Convention::Blocks {
                window: 8,
                score_tail: false,
            },
            ..chat
        };
        let error = planned(&[blocks]).unwrap_err().to_string();
        assert!(error.contains("one block of 8"), "{error}");
    }
}
