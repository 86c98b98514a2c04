//! A run of a plan in virtual time: who computes what when, without computing anything.
//!
//! Claims are sized, copies are made and rates are learned as in the ledger, by the rules in
//! [`crate::Supply`] and [`crate::still_needs`]. There is no clock and nothing random: the same
//! arguments give the same run.

mod device;
mod ledger;
mod run;
#[cfg(test)]
mod tests;

pub use device::SimulatedDevice;

use crate::plan::{CostModel, ShardPlan};
use run::Run;

/// The habits of workers and ledger, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulationTimes {
    /// From a claim until its first shard begins. Nothing else costs time but computing.
    pub claim: f64,
    /// Between two renewals of a worker's leases, by which it also learns what has ended.
    pub heartbeat: f64,
    /// From the last word of a worker until others get its shards.
    pub lease: f64,
    /// Longest wait of a device without work before it asks again. (Here it waits a tenth of the
    /// time it has been idle if that is longer, so that years of waiting can be simulated.)
    pub poll: f64,
}

impl Default for SimulationTimes {
    fn default() -> Self {
        Self {
            claim: 0.005,
            heartbeat: 3.0,
            lease: 15.0,
            poll: 1.0,
        }
    }
}

/// What came of a simulated run.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedRun {
    /// Seconds from the start of the run until each device has had its last result counted; 0 for
    /// one that was of no use.
    pub device_seconds: Vec<f64>,
    /// The largest of them: when the run ends.
    pub seconds: f64,
    /// Operations of results that were not counted, finished or not.
    pub vain_flops: f64,
    /// Claims that got something.
    pub claims: u64,
    /// Those of them that repeated what another device was at.
    pub copies: u64,
    /// Shards that nobody was left for.
    pub unfinished: usize,
}

/// Runs `shards` on `devices`.
pub fn simulate<'a>(
    shards: impl IntoIterator<Item = &'a ShardPlan>,
    cost: &CostModel,
    devices: &[SimulatedDevice],
    times: &SimulationTimes,
) -> SimulatedRun {
    let shards = shards.into_iter().map(|shard| {
        let micro_batches = shard.micro_batches.iter().map(|micro_batch| {
            let windows = micro_batch.0.iter();
            windows.map(|window| cost.window(window)).sum::<f64>()
        });
        micro_batches.collect()
    });
    Run::new(shards.collect(), devices, times).finish()
}
