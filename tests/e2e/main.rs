//! The service from outside: real PostgreSQL, real programs, HTTP.
//!
//! The programs are those beside this test in `target/release`; build them first.

mod adapters;
mod api;
mod audits;
mod bad_inputs;
mod chat;
mod checkpoint;
mod client;
mod comparisons;
mod conventions;
mod copies;
mod cuts;
mod demo;
mod elastic;
mod events;
mod failed_jobs;
mod files;
mod gates;
mod hub;
mod inputs;
mod keys;
mod kills;
mod ledger;
mod long_job;
mod moby_dick;
mod noise;
mod numerics;
mod operations;
mod paired;
mod parity;
mod partial;
mod profile;
mod random;
mod reference;
mod reuse;
mod service;
mod shapes;
mod silence;
mod splits;
mod spread;
mod stop;
mod tokens;
mod up;
mod uploads;
mod webhooks;
