//! The ledger against a real PostgreSQL: every transition of a job, a shard and an attempt.

mod audits;
mod baselines;
mod chaos;
mod claims;
mod copies;
mod crowd;
mod deadlines;
mod deliveries;
mod downloads;
mod events;
mod jobs;
mod leases;
mod metrics;
mod migrations;
mod numerics;
mod performance;
mod retention;
mod reuse;
mod rows;
mod schema;
mod service;
mod shards;
mod splits;
mod support;
mod tokens;
mod uploads;
