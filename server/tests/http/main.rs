//! The server over HTTP, on a real ledger and without a worker.

mod archive;
mod connections;
mod inspect;
mod jobs;
mod metrics;
mod plans;
mod service;
mod uploads;
mod webhooks;
mod worker;
