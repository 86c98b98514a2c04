//! The hub of a service on this machine.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;

/// Whether a hub is used, and where what is fetched from it is kept. Where it is and the token are
/// in the environment, which the programs inherit: every user can read the arguments of a process.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Hub {
    /// Take models and datasets of a hub (hf://org/name@revision,
    /// hf://datasets/org/name@revision/file.jsonl) where a job names a path; HF_ENDPOINT says which
    /// hub, HF_TOKEN has the token for what is private or gated there
    #[arg(long, env = "ASSAY_HUB", value_parser = FalseyValueParser::new())]
    hub: bool,
    /// Directory for what is fetched from the hub [default: `hub` below the state directory]
    #[arg(long, value_name = "DIR", env = "HF_HUB_CACHE")]
    hub_cache: Option<PathBuf>,
}

impl Hub {
    /// Arguments of the server and the worker.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &OsStr> {
        let hub = self.hub.then_some("--hub".as_ref());
        let cache = self.hub_cache.iter();
        let cache = cache.flat_map(|cache| ["--hub-cache".as_ref(), cache.as_os_str()]);
        hub.into_iter().chain(cache)
    }
}
