//! Plans: windows grouped into micro-batches and shards.

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterLayout;
use crate::cut;
use crate::error::PlanError;
use crate::scope::Scope;
use crate::sizes::{PlanConstants, cut_micro_batches, cut_shards};
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
/// that those of equal length meet in a micro-batch. They are cut greedily into micro-batches, and
/// consecutive micro-batches into shards, both of sizes that fall towards the end of the dataset:
/// see [`PlanConstants`]. No shard holds two datasets. Which windows share a micro-batch does not
/// depend on the other datasets of the job; how many micro-batches make a shard does.
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
    let mut plans = plan_unverified(scopes, cost, constants)?;
    for (scope, plan) in scopes.iter().zip(&mut plans) {
        for shard in &mut plan.shards {
            shard.spans_digest = spans_digest(&shard.micro_batches);
        }
        verify_spans(scope, &plan.shards)?;
    }
    Ok(plans)
}

/// [`plan`] without the digests, and without the proof that every token is counted once.
pub(crate) fn plan_unverified(
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

    let plans = (0_u32..).zip(scopes).zip(windows);
    let plans = plans.map(|((dataset, scope), windows)| {
        let micro_batches = cut_micro_batches(windows, constants);
        let shards = cut_shards(dataset, scope, micro_batches, cost, constants, job_flops);
        let windows = shards.iter().flat_map(ShardPlan::windows);
        DatasetPlan {
            scored_tokens: shards.iter().map(|shard| shard.scored_tokens).sum(),
            clusters: ClusterLayout::of_windows(scope, windows),
            shards,
        }
    });
    Ok(plans.collect())
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
            tail_divisor: 0,
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
        // 4 tokens cost 50, 3 cost 36, 2 cost 23: 209 in all, so a shard should have 104.5, and
        // 100 is nearer to that than 186.
        assert_eq!(
            plans[0].shards.iter().map(|s| s.flops).collect::<Vec<_>>(),
            [100.0, 86.0]
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
