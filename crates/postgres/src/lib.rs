//! A private PostgreSQL cluster, made from the programs that are installed on the machine.
//!
//! The cluster listens on a Unix socket that only its user (and root) can reach, never on TCP.
//! The server is a direct child of this process and does not outlive it. PostgreSQL refuses to
//! run as root, so when the caller is root the server runs as an unprivileged user.

mod account;
mod binaries;
mod cluster;
mod error;
mod place;
mod server;

pub use cluster::{Cluster, Settings};
pub use error::PostgresError;
