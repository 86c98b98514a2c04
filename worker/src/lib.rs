//! The worker: claims plans and shards from the ledger, owns the devices of one host, runs the
//! model, commits exact sums.
//!
//! Threads: an async runtime speaks to the ledger; one thread per device owns its tensors and
//! never waits for the ledger; one thread renews the leases and never waits for anything else.

mod budget;
mod committer;
mod config;
mod cores;
mod device;
mod device_kind;
mod devices;
mod doctor;
mod failure;
mod faults;
mod fetch;
mod heartbeat;
mod lease;
mod ledger;
#[cfg(test)]
#[allow(dead_code)] // what the store's own tests need besides
#[path = "../../crates/store/tests/ledger/support.rs"]
mod ledger_support;
mod planner;
mod precision;
mod profile;
mod rate;
mod resources;
mod restart;
mod retry;
mod row;
mod run;
mod shard;
mod slot;
mod split;

pub use config::Config;
pub use doctor::doctor;
pub use faults::Faults;
pub use precision::FastDtypes;
pub use run::{RunError, run};
