//! The ledger against a real PostgreSQL: every transition of a job, a shard and an attempt.

mod chaos;
mod jobs;
mod leases;
mod schema;
mod shards;
mod support;
