//! The server over HTTP, on a real ledger and without a worker.

mod access;
mod archive;
mod connections;
mod files;
mod inspect;
mod jobs;
mod keys;
mod metrics;
mod partial;
mod plans;
mod report;
mod service;
mod ui;
mod uploads;
mod webhooks;
mod worker;
