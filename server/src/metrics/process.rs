//! What a process says of itself, requests apart.

use assay_store::Connections;
use prometheus_client::registry::Registry;

use super::rows::{Level, register_by, register_one};

/// Adds the version, the connections of the database, and whether it answers.
pub(super) fn register(registry: &mut Registry, connections: Connections, answers: bool) {
    register_by(
        registry,
        "assay_build_info",
        "Always 1, with the version of the program",
        "version",
        [(env!("CARGO_PKG_VERSION"), Level(1.0))],
    );
    register_one(
        registry,
        "assay_database_up",
        "Whether the ledger could be read: without it, nothing is told of it",
        Level(f64::from(u8::from(answers))),
    );
    register_by(
        registry,
        "assay_database_connections",
        "Connections of this server to the database",
        "state",
        [
            ("in_use", Level(connections.in_use.into())),
            ("idle", Level(connections.idle.into())),
        ],
    );
    register_one(
        registry,
        "assay_database_connections_limit",
        "Connections that this server opens at most",
        Level(connections.most.into()),
    );
}
