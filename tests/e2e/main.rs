//! The service from outside: real PostgreSQL, real programs, HTTP.
//!
//! The programs are those beside this test in `target/release`; build them first.

mod api;
mod bad_inputs;
mod chat;
mod checkpoint;
mod client;
mod conventions;
mod demo;
mod failed_jobs;
mod files;
mod inputs;
mod kills;
mod ledger;
mod long_job;
mod moby_dick;
mod parity;
mod random;
mod reference;
mod reuse;
mod service;
mod splits;
mod spread;
mod stop;
mod tokens;
mod up;
mod uploads;
