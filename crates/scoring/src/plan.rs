//! Plans: windows grouped into micro-batches and shards.

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterLayout;
use crate::spans::{spans_digest, verify_spans};
use crate::window::{Window, rolling};

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

/// Why no plan can be made, or why one is not to be trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The window is 0.
    #[error("the window is 0; it takes at least one token")]
    WindowZero,
    /// More documents than a plan can number.
    #[error(
        "dataset {dataset} has {documents} documents, more than the 2^32 - 1 a plan can number"
    )]
    TooManyDocuments {
        /// Index of the dataset.
        dataset: usize,
        /// Its documents.
        documents: usize,
    },
    /// A dataset without tokens, which could never finish.
    #[error("dataset {dataset} has no token to score")]
    NothingToScore {
        /// Index of the dataset.
        dataset: usize,
    },
    /// A window of a document that the dataset does not have.
    #[error("a window names document {document}, but there are {documents}")]
    UnknownDocument {
        /// The document named.
        document: u32,
        /// Documents there are.
        documents: usize,
    },
    /// A window that leaves its document, or counts targets it does not predict.
    #[error("{window:?} does not fit its document of {tokens} tokens")]
    WindowDoesNotFit {
        /// The window.
        window: Window,
        /// Tokens of the document.
        tokens: u64,
    },
    /// A token that no window counts.
    #[error("token {token} of document {document} is not counted by any window")]
    NotCounted {
        /// The document.
        document: usize,
        /// The first such token.
        token: u64,
    },
    /// A token that two windows count.
    #[error("token {token} of document {document} is counted more than once")]
    CountedTwice {
        /// The document.
        document: usize,
        /// The first such token.
        token: u64,
    },
    /// A shard whose total is not that of its windows.
    #[error("shard {shard} claims {claimed} counted tokens, its windows count {counted}")]
    CountDiffers {
        /// Index of the shard among those verified.
        shard: usize,
        /// What it claims.
        claimed: u64,
        /// What its windows count.
        counted: u64,
    },
}

/// Plans a job under the convention `rolling`; `datasets` holds the tokens of each document.
///
/// Within a dataset, windows are sorted by length, longest first, then by document and start, so
/// that those of equal length meet in a micro-batch. They are cut greedily into micro-batches,
/// and consecutive micro-batches into shards of at least
/// `min(job's operations / max_shards, max_shard_flops)`. No shard holds two datasets.
///
/// The plan follows from the arguments alone, and is verified by [`verify_spans`] first.
///
/// # Errors
/// [`PlanError::WindowZero`], [`PlanError::TooManyDocuments`], [`PlanError::NothingToScore`].
pub fn plan(
    datasets: &[&[u64]],
    window: u32,
    cost: &CostModel,
    constants: &PlanConstants,
) -> Result<Vec<DatasetPlan>, PlanError> {
    if window == 0 {
        return Err(PlanError::WindowZero);
    }
    let windows = datasets
        .iter()
        .enumerate()
        .map(|(dataset, lengths)| sorted_windows(dataset, lengths, window))
        .collect::<Result<Vec<_>, _>>()?;
    let job_flops: f64 = windows.iter().flatten().map(|w| cost.window(w)).sum();
    let shard_flops = (job_flops / f64::from(constants.max_shards)).min(constants.max_shard_flops);

    (0_u32..)
        .zip(datasets)
        .zip(windows)
        .map(|((dataset, lengths), windows)| {
            let micro_batches = cut_micro_batches(windows, constants.micro_batch_tokens);
            let shards = cut_shards(dataset, micro_batches, cost, shard_flops);
            verify_spans(lengths, &shards)?;
            Ok(DatasetPlan {
                scored_tokens: shards.iter().map(|shard| shard.scored_tokens).sum(),
                shards,
                clusters: ClusterLayout::of(lengths),
            })
        })
        .collect()
}

fn sorted_windows(dataset: usize, lengths: &[u64], window: u32) -> Result<Vec<Window>, PlanError> {
    if u32::try_from(lengths.len()).is_err() {
        return Err(PlanError::TooManyDocuments {
            dataset,
            documents: lengths.len(),
        });
    }
    let mut windows: Vec<Window> = (0_u32..)
        .zip(lengths)
        .flat_map(|(document, &tokens)| rolling(document, tokens, window))
        .collect();
    if windows.is_empty() {
        return Err(PlanError::NothingToScore { dataset });
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
    micro_batches: Vec<MicroBatch>,
    cost: &CostModel,
    shard_flops: f64,
) -> Vec<ShardPlan> {
    let mut shards: Vec<ShardPlan> = Vec::new();
    for micro_batch in micro_batches {
        let flops: f64 = micro_batch.0.iter().map(|w| cost.window(w)).sum();
        let scored: u64 = micro_batch.0.iter().map(Window::scored).sum();
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
mod tests {
    use super::*;

    const COST: CostModel = CostModel {
        linear_flops_per_token: 10.0,
        attention_flops_per_pair: 1.0,
    };

    #[test]
    fn plans_by_hand() {
        let constants = PlanConstants {
            micro_batch_tokens: 8,
            max_shards: 2,
            ..PlanConstants::default()
        };
        let plans = plan(&[&[3, 0, 10], &[2]], 4, &COST, &constants).unwrap();

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
    fn what_cannot_be_planned_is_an_error() {
        let constants = PlanConstants::default();
        assert_eq!(
            plan(&[&[1]], 0, &COST, &constants),
            Err(PlanError::WindowZero)
        );
        assert_eq!(
            plan(&[&[1], &[0, 0]], 4, &COST, &constants),
            Err(PlanError::NothingToScore { dataset: 1 })
        );
    }
}
