//! The arithmetic of Assay: windows, plans, exact sums, statistics.
//!
//! Pure functions of their arguments: no I/O, no clock, no tensors. What is computed here is the
//! same on every host, so a plan can be checked anywhere and sums may arrive in any order.

mod cluster;
mod exact;
mod plan;
mod spans;
mod statistics;
mod window;
mod words;

pub use cluster::{ClusterLayout, ClusterSum, ShardSums, document_sums};
pub use exact::{ExactSum, NllError, to_units};
pub use plan::{CostModel, DatasetPlan, MicroBatch, PlanConstants, PlanError, ShardPlan, plan};
pub use spans::{spans_digest, verify_spans};
pub use statistics::{DatasetStatistics, DocumentFacts, statistics};
pub use window::{Window, rolling};
pub use words::count_words;

/// Changes whenever a change of the program moves a bit of a result.
pub const NUMERICS_VERSION: u32 = 1;
