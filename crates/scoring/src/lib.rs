//! The arithmetic of Assay: windows, plans, exact sums, statistics.
//!
//! Pure functions of their arguments: no I/O, no clock, no tensors. What is computed here is the
//! same on every host, so a plan can be checked anywhere and sums may arrive in any order.

mod cluster;
mod convention;
mod cut;
mod error;
mod exact;
mod groups;
mod paired;
mod plan;
mod policy;
mod scope;
mod shard_sums;
mod simulate;
mod sizes;
mod so_far;
mod spans;
mod standard_error;
mod statistics;
mod strategies;
mod verify;
mod window;
mod words;

pub use cluster::{ClusterLayout, document_sums};
pub use convention::Convention;
pub use cut::rolling;
pub use error::PlanError;
pub use exact::{ExactSum, NllError, UNITS_PER_NAT, to_units};
pub use groups::GroupStatistics;
pub use paired::{Pair, PairedDifference, paired_difference};
pub use plan::{CostModel, DatasetPlan, MicroBatch, ShardPlan, plan};
pub use policy::{COPY_GAIN, Quota, Supply, still_needs};
pub use scope::Scope;
pub use shard_sums::{ClusterSum, ShardSums};
pub use simulate::{SimulatedDevice, SimulatedRun, SimulationTimes, simulate};
pub use sizes::PlanConstants;
pub use so_far::SoFar;
pub use spans::spans_digest;
pub use statistics::{DatasetStatistics, Detail, DocumentFacts, statistics};
pub use strategies::{Comparison, Strategy, compare};
pub use verify::verify_spans;
pub use window::Window;
pub use words::count_words;

/// Changes whenever a change of the program moves a bit of a result.
pub const NUMERICS_VERSION: u32 = 4;
