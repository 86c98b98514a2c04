//! The worker's settings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use crate::faults::Faults;
use crate::precision::FastDtypes;

/// The form of the log on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Settings of `assay-worker`, each a flag and an environment variable.
#[derive(Clone, Args)]
pub struct Config {
    /// The ledger, such as `postgres://user:password@host/assay`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Directory that model paths are relative to.
    #[arg(long, env = "ASSAY_MODEL_ROOT", default_value = "models")]
    pub model_root: PathBuf,
    /// Directory that dataset paths are relative to.
    #[arg(long, env = "ASSAY_DATA_ROOT", default_value = "data")]
    pub data_root: PathBuf,
    /// Directory for caches of this host: tokens and digests. Workers of one host may share it.
    #[arg(long, env = "ASSAY_STATE_DIR", default_value = "state")]
    pub state_dir: PathBuf,
    /// Take references to a hub of models and datasets (`hf://`) where a job names a path, as the
    /// server does with the same setting. The hub is `HF_ENDPOINT`, by default
    /// https://huggingface.co; what is private or gated there takes a token, which is read from
    /// `HF_TOKEN`.
    #[arg(long, env = "ASSAY_HUB", value_parser = FalseyValueParser::new())]
    pub hub: bool,
    /// Directory for what is fetched from the hub; other programs for it may share it
    /// [default: `hub` below the state directory].
    #[arg(long, env = "HF_HUB_CACHE", value_name = "DIR")]
    pub hub_cache: Option<PathBuf>,
    /// Devices, separated by commas: `cpu:0` is the first core as one device, `cpu:0-1` the first
    /// two cores as one device, `cuda:0` a GPU. By default all GPUs, or else all cores as one
    /// device.
    #[arg(long, env = "ASSAY_DEVICES")]
    pub devices: Option<String>,
    /// Bytes that the activations of one micro-batch may take on each device. Micro-batches that
    /// need more are split, which the result says. By default what the host has available when a
    /// shard starts, divided among the devices; on GPUs no limit.
    #[arg(long, env = "ASSAY_MEMORY_BUDGET", value_name = "BYTES")]
    pub memory_budget: Option<u64>,
    /// Seconds between two renewals of the leases.
    #[arg(long, env = "ASSAY_HEARTBEAT_SECONDS", default_value = "3", value_parser = seconds)]
    pub heartbeat: Duration,
    /// Seconds after which work of a silent worker is given to others.
    #[arg(long, env = "ASSAY_LEASE_SECONDS", default_value = "15", value_parser = seconds)]
    pub lease: Duration,
    /// Seconds without a finished micro-batch, or a loaded model, after which a device counts as
    /// hung, at least; it is ten times the predicted time where that is longer. The worker then
    /// starts itself anew.
    #[arg(long, env = "ASSAY_DEVICE_PATIENCE_SECONDS", default_value = "300", value_parser = seconds)]
    pub device_patience: Duration,
    /// Dtypes that the devices are fast in, separated by commas: float32, bfloat16. A job with
    /// adaptive numerics is computed in float32 where its dtype is not among them. By default
    /// bfloat16 is fast where it takes less time than float32, which is measured.
    #[arg(long, env = "ASSAY_FAST_DTYPES", value_name = "DTYPES")]
    pub fast_dtypes: Option<FastDtypes>,
    /// Write down what this worker spends its time on: to this file, to which is appended, a JSON
    /// object for each span of a device's time, as `assay profile` reads them. On a GPU the stages
    /// of the computation then wait for one another.
    #[arg(
        long,
        env = "ASSAY_PROFILE",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub profile: Option<PathBuf>,
    /// Misbehave, for tests of the service.
    #[arg(long, env = "ASSAY_FAULT", hide = true)]
    pub fault: Option<Faults>,
    /// Form of the log on standard error. `RUST_LOG` sets the level by module; the default is
    /// `info`.
    #[arg(long, env = "ASSAY_LOG", value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,
}

impl fmt::Debug for Config {
    /// Without the database's URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("model_root", &self.model_root)
            .field("data_root", &self.data_root)
            .field("state_dir", &self.state_dir)
            .field("hub", &self.hub)
            .field("hub_cache", &self.hub_cache)
            .field("devices", &self.devices)
            .field("memory_budget", &self.memory_budget)
            .field("heartbeat", &self.heartbeat)
            .field("lease", &self.lease)
            .field("device_patience", &self.device_patience)
            .field("fast_dtypes", &self.fast_dtypes)
            .field("profile", &self.profile)
            .field("fault", &self.fault)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Where what is fetched from the hub is kept.
    pub(crate) fn hub_cache(&self) -> PathBuf {
        let given = self.hub_cache.clone();
        given.unwrap_or_else(|| self.state_dir.join("hub"))
    }

    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// A lease that a single late renewal would lose.
    pub fn validate(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.lease >= self.heartbeat * 2,
            "--lease ({} s) must be at least twice --heartbeat ({} s), or one late renewal loses it",
            self.lease.as_secs_f64(),
            self.heartbeat.as_secs_f64()
        );
        Ok(())
    }
}

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_hours(24);

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| (SHORTEST..=LONGEST).contains(duration))
        .ok_or_else(|| {
            let (shortest, longest) = (SHORTEST.as_secs_f64(), LONGEST.as_secs());
            format!("takes {shortest} to {longest} seconds, not {text}")
        })
}
