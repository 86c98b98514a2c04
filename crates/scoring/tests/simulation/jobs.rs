//! Jobs and devices to simulate; the example `simulation` uses them too.

// Lengths are small.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use assay_scoring::{
    Convention, CostModel, DatasetPlan, PlanConstants, Scope, ShardPlan, SimulatedDevice, plan,
};

/// A llama of 134.5 million parameters: 30 layers, 576 wide.
pub(crate) const COST: CostModel = CostModel {
    linear_flops_per_token: 2.0 * 134.5e6,
    attention_flops_per_pair: 4.0 * 30.0 * 576.0,
};

/// Operations per second of a core with AVX-512, about, at such a model in float32.
pub(crate) const CORE: f64 = 1.5e11;

/// The same of a large GPU.
pub(crate) const GPU: f64 = 2e13;

/// Tokens of the 62 articles of the WikiText-2 test set by SmolLM2's tokenizer.
pub(crate) fn wikitext2() -> Vec<u64> {
    serde_json::from_str(include_str!("wikitext2_lengths.json")).unwrap()
}

/// Numbers drawn by SplitMix64.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// At least 0, below 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Lengths whose logarithms are normally distributed.
    pub(crate) fn log_normal(&mut self, documents: usize, median: f64, sigma: f64) -> Vec<u64> {
        let lengths = (0..documents).map(|_| median * (sigma * self.normal()).exp());
        lengths
            .map(|tokens| tokens.round().max(1.0) as u64)
            .collect()
    }

    /// Lengths from `least` on, at most 100,000: a length x has a probability like
    /// x^-(alpha + 1).
    pub(crate) fn pareto(&mut self, documents: usize, least: f64, alpha: f64) -> Vec<u64> {
        let lengths = (0..documents).map(|_| least * (1.0 - self.uniform()).powf(-1.0 / alpha));
        lengths
            .map(|tokens| tokens.round().min(1e5) as u64)
            .collect()
    }
}

/// A scope of these documents in windows of `window` tokens.
pub(crate) fn scope(lengths: &[u64], window: u32) -> Scope<'_> {
    Scope {
        convention: Convention::Rolling { window },
        lengths,
        prefix: true,
        counted: None,
    }
}

/// The plan of [`scope`].
pub(crate) fn planned(lengths: &[u64], window: u32) -> DatasetPlan {
    let plans = plan(&[scope(lengths, window)], &COST, &PlanConstants::default());
    plans.unwrap().remove(0)
}

/// Operations of a plan.
pub(crate) fn flops(plan: &DatasetPlan) -> f64 {
    plan.shards.iter().map(|shard| shard.flops).sum()
}

/// Windows of a plan.
pub(crate) fn windows(plan: &DatasetPlan) -> usize {
    plan.shards.iter().flat_map(ShardPlan::windows).count()
}

/// The largest over the mean.
pub(crate) fn unevenness(seconds: &[f64]) -> f64 {
    let largest = seconds.iter().copied().fold(0.0, f64::max);
    largest * seconds.len() as f64 / seconds.iter().sum::<f64>()
}

/// When devices have done so many operations together, without a rest.
pub(crate) fn least(devices: &[SimulatedDevice], flops: f64) -> f64 {
    let work = |device: &SimulatedDevice, end: f64| -> f64 {
        let end = device.leaves.unwrap_or(end).min(end);
        let ends = device.speeds.iter().skip(1).map(|&(from, _)| from);
        let stretches = device.speeds.iter().zip(ends.chain([f64::INFINITY]));
        let seconds = |from: f64, to: f64| (to.min(end) - from.max(device.joins)).max(0.0);
        stretches
            .map(|(&(from, speed), to)| seconds(from, to) * speed)
            .sum()
    };
    let (mut low, mut high) = (0.0, 1e7);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let done: f64 = devices.iter().map(|device| work(device, middle)).sum();
        if done < flops {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
