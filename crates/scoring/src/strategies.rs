//! Ways to spread a job over devices, compared without running it.

use crate::plan::{CostModel, DatasetPlan, ShardPlan};
use crate::scope::Scope;
use crate::simulate::{SimulatedDevice, SimulationTimes, simulate};

/// A way to spread a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Each document goes to a device drawn at random, all equally likely.
    Random,
    /// Equal numbers of documents, in their order.
    Even,
    /// Documents by falling length, dealt one to each device in turn.
    Length,
    /// What jobs run by: the shards of the plan, claimed largest first by whoever is free.
    Dynamic,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Random, Self::Even, Self::Length, Self::Dynamic];
}

/// What a job would come to by each strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Shards of the plan.
    pub shards: u64,
    /// Windows of all datasets.
    pub windows: u64,
    /// Operations of the job.
    pub flops: f64,
    /// Tokens that count.
    pub scored_tokens: u64,
    /// Seconds that no strategy can go below: all work spread without a rest, or the longest
    /// window on the fastest device.
    pub lower_bound_seconds: f64,
    /// Of each strategy, seconds until each device has done its last piece; 0 where it has none.
    pub strategies: Vec<(Strategy, Vec<f64>)>,
}

/// Compares the strategies for the job of `scopes`, of which these are the plans, on devices of
/// these floating-point operations per second, each above 0. There must be at least one.
///
/// [`Strategy::Dynamic`] is [`simulate`]d with the plan that the job would run by, for devices that
/// all start at once and stay equally fast; equally fast ones are of one kind. The others compute
/// whole documents in the same windows, and nothing else costs them time. Datasets lie one behind
/// the other for them. Under a joined convention a document comes with the windows that begin in
/// it. `seed` decides what [`Strategy::Random`] draws.
pub fn compare(
    scopes: &[Scope<'_>],
    plans: &[DatasetPlan],
    cost: &CostModel,
    devices: &[f64],
    seed: u64,
) -> Comparison {
    let documents: Vec<Document> = scopes
        .iter()
        .zip(plans)
        .flat_map(|(scope, plan)| documents(scope, plan, cost))
        .collect();
    let flops: f64 = documents.iter().map(|document| document.flops).sum();
    let shards = || plans.iter().flat_map(|plan| &plan.shards);
    let windows = || shards().flat_map(ShardPlan::windows);
    let longest = windows()
        .map(|window| cost.window(window))
        .fold(0.0, f64::max);
    let fastest = devices.iter().copied().fold(0.0, f64::max);
    let all: f64 = devices.iter().sum();

    let strategies = Strategy::ALL.map(|strategy| {
        let seconds = match strategy {
            Strategy::Random => random(&documents, devices, seed),
            Strategy::Even => even(&documents, devices),
            Strategy::Length => by_length(&documents, devices),
            Strategy::Dynamic => dynamic(plans, cost, devices),
        };
        (strategy, seconds)
    });
    Comparison {
        shards: shards().count() as u64,
        windows: windows().count() as u64,
        flops,
        scored_tokens: plans.iter().map(|plan| plan.scored_tokens).sum(),
        lower_bound_seconds: (flops / all).max(longest / fastest),
        strategies: strategies.into(),
    }
}

/// What the strategies without a plan look at.
#[derive(Clone, Copy, Debug)]
struct Document {
    tokens: u64,
    flops: f64,
}

fn documents(scope: &Scope<'_>, plan: &DatasetPlan, cost: &CostModel) -> Vec<Document> {
    let lengths = scope.lengths.iter();
    let mut documents: Vec<Document> = lengths
        .map(|&tokens| Document { tokens, flops: 0.0 })
        .collect();
    let ends: Vec<u64> = scope
        .lengths
        .iter()
        .scan(0_u64, |end, &tokens| {
            *end = end.saturating_add(tokens);
            Some(*end)
        })
        .collect();
    for window in plan.shards.iter().flat_map(ShardPlan::windows) {
        let document = if scope.convention.is_joined() {
            // A BOS goes with the first token.
            let first = window.start.max(0).cast_unsigned();
            ends.partition_point(|&end| end <= first)
        } else {
            window.document as usize
        };
        documents[document].flops += cost.window(window);
    }
    documents
}

/// Seconds of each device that computes the documents dealt to it.
fn dealt<'a>(devices: &[f64], deal: impl Iterator<Item = (&'a Document, usize)>) -> Vec<f64> {
    let mut seconds = vec![0.0; devices.len()];
    for (document, device) in deal {
        seconds[device] += document.flops / devices[device];
    }
    seconds
}

fn random(documents: &[Document], devices: &[f64], seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut draw = || {
        let drawn = u128::from(splitmix64(&mut state)) * devices.len() as u128;
        usize::try_from(drawn >> 64).expect("less than the number of devices")
    };
    dealt(devices, documents.iter().map(|document| (document, draw())))
}

/// The next number of Steele, Lea and Flood's SplitMix64 (2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn even(documents: &[Document], devices: &[f64]) -> Vec<f64> {
    let numbered = documents.iter().enumerate();
    let deal = numbered.map(|(i, document)| (document, i * devices.len() / documents.len()));
    dealt(devices, deal)
}

fn by_length(documents: &[Document], devices: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<&Document> = documents.iter().collect();
    sorted.sort_by_key(|document| std::cmp::Reverse(document.tokens));
    let numbered = sorted.into_iter().enumerate();
    dealt(
        devices,
        numbered.map(|(i, document)| (document, i % devices.len())),
    )
}

fn dynamic(plans: &[DatasetPlan], cost: &CostModel, devices: &[f64]) -> Vec<f64> {
    let mut kinds: Vec<u64> = devices.iter().map(|flops| flops.to_bits()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = |flops: f64| kinds.partition_point(|&kind| kind < flops.to_bits());
    let devices: Vec<SimulatedDevice> = devices
        .iter()
        .map(|&flops| SimulatedDevice::steady(u32::try_from(kind(flops)).unwrap_or(0), flops))
        .collect();
    let shards = plans.iter().flat_map(|plan| &plan.shards);
    simulate(shards, cost, &devices, &SimulationTimes::default()).device_seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convention::Convention;

    /// A token costs one operation.
    const COST: CostModel = CostModel {
        linear_flops_per_token: 1.0,
        attention_flops_per_pair: 0.0,
    };

    fn compared(convention: Convention, lengths: &[u64], devices: &[f64]) -> Comparison {
        let scope = Scope {
            convention,
            lengths,
            prefix: !convention.is_joined(),
            counted: None,
        };
        let plans = crate::plan(&[scope], &COST, &crate::PlanConstants::default()).unwrap();
        compare(&[scope], &plans, &COST, devices, 7)
    }

    #[test]
    fn strategies_by_hand() {
        let rolling = Convention::Rolling { window: 4 };
        let lengths = [2, 12, 4, 0, 8];
        let compared = compared(rolling, &lengths, &[1.0, 2.0]);
        assert_eq!((compared.windows, compared.scored_tokens), (7, 26));
        let seconds = |strategy| {
            let mut strategies = compared.strategies.iter();
            strategies
                .find(|(other, _)| *other == strategy)
                .unwrap()
                .1
                .clone()
        };
        // 2, 12 and 4 tokens, then 0 and 8.
        assert_eq!(seconds(Strategy::Even), [18.0, 4.0]);
        // 12, 4 and 0 by turns with 8 and 2.
        assert_eq!(seconds(Strategy::Length), [16.0, 5.0]);
        let random = seconds(Strategy::Random);
        assert!(
            (random[0] + 2.0 * random[1] - 26.0).abs() < 1e-9,
            "{random:?}"
        );
        // All windows in one micro-batch: whoever asks first.
        assert_eq!(compared.shards, 1);
        assert!((seconds(Strategy::Dynamic)[0] - 26.005).abs() < 1e-9);
        assert!((compared.flops - 26.0).abs() < 1e-9);
        assert!((compared.lower_bound_seconds - 26.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_joined_window_goes_with_the_document_in_which_it_begins() {
        let blocks = Convention::Blocks {
            window: 4,
            score_tail: true,
        };
        // Windows at 0, 4, 8: the last with two tokens.
        let compared = compared(blocks, &[5, 0, 1, 4], &[1.0; 4]);
        let (strategy, seconds) = &compared.strategies[1];
        assert_eq!(
            (*strategy, &seconds[..]),
            (Strategy::Even, &[8.0, 0.0, 0.0, 2.0][..])
        );
    }

    #[test]
    fn what_is_drawn_follows_from_the_seed() {
        let mut state = 1_234_567;
        let drawn: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn one_long_window_bounds_the_time() {
        let rolling = Convention::Rolling { window: 100 };
        let compared = compared(rolling, &[100, 1], &[1.0, 4.0]);
        assert!((compared.lower_bound_seconds - 25.0).abs() < 1e-9);
    }
}
