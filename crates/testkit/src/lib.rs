//! What the tests of Assay share: a fresh database per test, real programs on ports the kernel
//! picks, a way to the database that can be cut, a hub of models, a receiver of webhooks, small
//! roots, a reader of metrics,
//! and one way to wait.
//!
//! Nothing here knows the server, the store or the worker, so that their own tests can use it.
//! Helpers panic where a test could not go on, with what to do about it.

mod database;
mod eventually;
mod exposition;
pub mod hub;
mod processes;
mod program;
mod proxy;
mod receiver;
mod roots;

pub use assay_process::Signal;
pub use database::{TestCluster, TestDatabase};
pub use eventually::{LIMIT, eventually};
pub use exposition::{Exposition, Metric, Sample};
pub use processes::{Process, children, is_running, leave_memory, peak_memory, signal};
pub use program::{Program, executable};
pub use proxy::Proxy;
pub use receiver::{Received, Receiver, Reply};
pub use roots::{Roots, fixture};
