//! References to models and datasets of a hub, and a cache of what they stand for.
//!
//! `hf://org/name@revision` names a model, `hf://datasets/org/name@revision/path` a file of a
//! dataset. [`Hub::resolve`] asks the hub once what a reference stands for: a commit, and a list
//! of files with their sizes and digests. [`Hub::fetch`] makes those that are wanted be in a
//! directory.
//!
//! # How it is meant to be used
//!
//! The server resolves the reference that a client posts, refuses it at once where the hub does,
//! and keeps [`Reference::pinned`]: a branch may move, a job may not. It fetches the files that
//! [describe the model](describes_model), some megabytes, and validates by them as it does for a
//! local checkpoint. A worker resolves the pinned reference, fetches the same small files, finds
//! in them [which files the weights are](weights_of_model), and fetches those while it reports
//! the progress. Both keep a cache; if it is one directory, nothing is fetched twice.
//!
//! Nothing here is on by itself: whoever makes the [`Settings`] decides whether the hub is used at
//! all. [`Settings::of_environment`] alone reads the environment (`HF_ENDPOINT`, `HF_TOKEN`,
//! `HF_HUB_OFFLINE`).
//!
//! # What is relied on
//!
//! * A file appears under its name only after its bytes have the digest that the hub lists. What
//!   is in the cache is checked by size alone.
//! * Large files are served by other hosts, to which the hub redirects. The token is not sent
//!   there.
//! * A commit's list of files is kept, so that a worker that starts anew needs no hub.
//!
//! # Why no existing client
//!
//! `hf-hub` 1.0 receives a file from its first byte on whatever came before, checks no digest,
//! takes a token from the environment when it is given none, and needs the whole client of the
//! hub's chunk storage, some hundred packages more than this crate. Version 0.5 sends the token to
//! the hosts that the hub redirects to, gives up when another process takes more than five
//! seconds for the same file, and brings a second HTTP client. What is worth sharing is their
//! cache's layout and the names of its locks, and both are kept here.

mod cache;
mod client;
mod digest;
mod error;
mod fetch;
mod hub;
mod partial;
mod reference;
mod snapshot;
mod wanted;

pub use digest::Digest;
pub use error::HubError;
pub use fetch::Progress;
pub use hub::{DEFAULT_ENDPOINT, Hub, Settings};
pub use reference::{Kind, Part, Problem, Reference, ReferenceError, Repository, SCHEME};
pub use snapshot::{RemoteFile, Snapshot};
pub use wanted::{describes_model, weights_of_adapter, weights_of_model};
