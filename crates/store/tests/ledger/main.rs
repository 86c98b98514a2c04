//! The ledger against a real PostgreSQL: every transition of a job, a shard and an attempt.

mod chaos;
mod jobs;
mod leases;
mod migrations;
mod reuse;
mod rows;
mod schema;
mod shards;
mod splits;
mod support;
mod tokens;
mod uploads;
