//! Where a service on this machine has its things.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Folders, devices and database of a service on this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Host {
    /// Directory that holds the checkpoints
    #[arg(
        long,
        value_name = "DIR",
        env = "ASSAY_MODEL_ROOT",
        default_value = "models"
    )]
    pub(crate) model_root: PathBuf,
    /// Directory that holds the datasets
    #[arg(
        long,
        value_name = "DIR",
        env = "ASSAY_DATA_ROOT",
        default_value = "data"
    )]
    pub(crate) data_root: PathBuf,
    /// Directory for the private PostgreSQL, uploaded datasets and caches
    #[arg(
        long,
        value_name = "DIR",
        env = "ASSAY_STATE_DIR",
        default_value = "state"
    )]
    pub(crate) state_dir: PathBuf,
    /// Devices of a worker, such as `cpu:0`, `cpu:0-1` or `cuda:0,cuda:1` [default: all GPUs, or
    /// else all cores as one]
    #[arg(long, value_name = "SPEC", env = "ASSAY_DEVICES")]
    pub(crate) devices: Option<String>,
    /// An existing PostgreSQL to use instead of a private one
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: Option<String>,
}

impl Host {
    /// Arguments of the server and the worker: the roots, and `state`, which is `state_dir`.
    pub(crate) fn folders<'a>(&'a self, state: &'a Path) -> [&'a OsStr; 6] {
        [
            "--model-root".as_ref(),
            self.model_root.as_os_str(),
            "--data-root".as_ref(),
            self.data_root.as_os_str(),
            "--state-dir".as_ref(),
            state.as_os_str(),
        ]
    }

    /// Arguments of the worker: its devices, if they are given.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &OsStr> {
        let devices = self.devices.iter();
        devices.flat_map(|spec| ["--devices".as_ref(), spec.as_ref()])
    }
}
