//! The server over HTTP, on a real ledger and without a worker.

mod access;
mod archive;
mod connections;
mod inspect;
mod jobs;
mod keys;
mod metrics;
mod plans;
mod service;
mod uploads;
mod worker;
