//! The service from outside: real PostgreSQL, real programs, HTTP.
//!
//! The programs are those beside this test in `target/release`; build them first.

mod api;
mod checkpoint;
mod client;
mod demo;
mod failed_jobs;
mod kills;
mod ledger;
mod long_job;
mod moby_dick;
mod parity;
mod random;
mod refused_requests;
mod service;
mod spread;
mod stop;
mod up;
