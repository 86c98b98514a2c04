//! What `GET /metrics` says. Of this process: its requests and connections. Of the ledger, which
//! all servers share and say the same of: everything else.
//!
//! `docs/operations.md` says what each metric means; a test compares the names.

mod ledger;
mod process;
mod requests;
mod rows;
mod text;

pub(crate) use requests::{Requests, UNMATCHED};
pub(crate) use text::Format;

use assay_store::Store;
use prometheus_client::registry::Registry;

use ledger::LedgerCache;

/// What the metrics are made of.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Told of every request by the edge.
    pub(crate) requests: Requests,
    ledger: LedgerCache,
    store: Store,
}

impl Metrics {
    /// Those of a process that has just begun.
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            requests: Requests::default(),
            ledger: LedgerCache::new(store.clone()),
            store: store.clone(),
        }
    }

    /// All of them as they are now, in this format.
    pub(crate) async fn scrape(&self, format: Format) -> String {
        let reading = self.ledger.read().await;
        let mut registry = Registry::default();
        process::register(&mut registry, self.store.connections(), reading.is_some());
        self.requests.register(&mut registry);
        if let Some(reading) = reading {
            ledger::register_reading(&mut registry, &reading);
        }
        let written = format.write(&registry);
        written.expect("a string takes all that is written")
    }
}
