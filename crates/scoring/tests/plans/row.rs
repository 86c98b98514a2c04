//! Rows to plan, and what of them should count.

use std::ops::Range;

use assay_scoring::{
    Convention, CostModel, DatasetPlan, PlanConstants, PlanError, Scope, ShardPlan, Window, plan,
};
use proptest::prelude::*;

pub(crate) const COST: CostModel = CostModel {
    linear_flops_per_token: 1000.0,
    attention_flops_per_pair: 10.0,
};

/// A dataset under a convention, with what its [`Scope`] borrows.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) convention: Convention,
    pub(crate) lengths: Vec<u64>,
    pub(crate) prefix: bool,
    pub(crate) counted: Option<Vec<Vec<Range<u64>>>>,
}

impl Row {
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope {
            convention: self.convention,
            lengths: &self.lengths,
            prefix: self.prefix,
            counted: self.counted.as_deref(),
        }
    }

    /// Whether the mask, if any, lets a token of a window's stream count.
    pub(crate) fn may_count(&self, document: u32, token: u64) -> bool {
        let masks = self.counted.as_ref().map(|masks| &masks[document as usize]);
        masks.is_none_or(|masks| masks.iter().any(|range| range.contains(&token)))
    }

    /// The owner and the index in its stream of every token that should count, by the words of
    /// the conventions: a token is reached by walking the text as a reader of them would.
    pub(crate) fn expected(&self) -> Vec<(u32, u64)> {
        let mut tokens = Vec::new();
        let mut start = 0;
        for (document, &length) in (0_u32..).zip(&self.lengths) {
            tokens.extend((0..length).map(|token| (document, start + token)));
            if self.convention.is_joined() {
                start += length;
            }
        }
        let positions = start + u64::from(self.prefix);
        tokens.retain(|&(document, token)| {
            let position = token + u64::from(self.prefix);
            match self.convention {
                Convention::Rolling { .. } => position > 0 && self.may_count(document, token),
                Convention::Strided { .. } => position > 0,
                Convention::Blocks { window, score_tail } => {
                    let (block, offset) =
                        (position / u64::from(window), position % u64::from(window));
                    let full = (block + 1) * u64::from(window) <= positions;
                    offset > 0 && (full || score_tail)
                }
                Convention::LlamaCpp { window } => {
                    let (block, offset) =
                        (position / u64::from(window), position % u64::from(window));
                    let full = (block + 1) * u64::from(window) <= positions;
                    offset > u64::from(window / 2) && full
                }
            }
        });
        tokens
    }
}

pub(crate) fn conventions() -> impl Strategy<Value = Convention> {
    let strided = (2_u32..70).prop_flat_map(|window| (Just(window), 1..window));
    prop_oneof![
        2 => (1_u32..70).prop_map(|window| Convention::Rolling { window }),
        1 => (2_u32..70, any::<bool>())
            .prop_map(|(window, score_tail)| Convention::Blocks { window, score_tail }),
        1 => strided.prop_map(|(window, stride)| Convention::Strided { window, stride }),
        1 => (4_u32..70).prop_map(|window| Convention::LlamaCpp { window }),
    ]
}

pub(crate) fn rows() -> impl Strategy<Value = Row> {
    let document = prop_oneof![1 => Just(0_u64), 3 => 0_u64..40, 1 => 0_u64..400];
    let lengths = prop::collection::vec(document, 1..10);
    let lengths = lengths.prop_flat_map(|lengths| {
        let masks = lengths.iter().map(|&n| mask(n)).collect::<Vec<_>>();
        (Just(lengths), prop::option::of(masks))
    });
    (conventions(), lengths, any::<bool>()).prop_map(|(convention, (lengths, counted), prefix)| {
        Row {
            counted: counted.filter(|_| !convention.is_joined()),
            convention,
            lengths,
            prefix,
        }
    })
}

/// Ranges of a document of `tokens` tokens, some of them next to each other.
fn mask(tokens: u64) -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::btree_set(0..=tokens, 0..8).prop_map(|bounds| {
        let bounds: Vec<u64> = bounds.into_iter().collect();
        let ranges = bounds.windows(2).map(|pair| pair[0]..pair[1]);
        ranges
            .enumerate()
            .filter(|(index, _)| index % 3 != 1)
            .map(|(_, range)| range)
            .collect()
    })
}

/// Rows that can be planned.
pub(crate) fn plannable() -> impl Strategy<Value = Row> {
    rows().prop_filter("something counts", |row| !row.expected().is_empty())
}

pub(crate) fn constants() -> impl Strategy<Value = PlanConstants> {
    let tail = (prop_oneof![Just(0_u32), 1_u32..50], 0_u32..100);
    (1_u32..200, 1_u32..20, 1e3..1e7, tail).prop_map(
        |(micro_batch_tokens, max_shards, flops, (tail_divisor, tail_micro_batch_tokens))| {
            PlanConstants {
                micro_batch_tokens,
                max_shards,
                max_shard_flops: flops,
                tail_divisor,
                tail_micro_batch_tokens,
            }
        },
    )
}

pub(crate) fn planned(
    rows: &[Row],
    constants: &PlanConstants,
) -> Result<Vec<DatasetPlan>, PlanError> {
    let scopes: Vec<_> = rows.iter().map(Row::scope).collect();
    plan(&scopes, &COST, constants)
}

pub(crate) fn windows(plan: &DatasetPlan) -> impl Iterator<Item = &Window> {
    plan.shards.iter().flat_map(ShardPlan::windows)
}
