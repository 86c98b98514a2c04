//! The settings of the server: flags, each with an environment variable.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use crate::connections::Connections;
use crate::webhooks::WebhookSettings;

/// The settings of `assay-server serve`. The doc comment of a field is its manual.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// The PostgreSQL database of the ledger: `postgres://USER:PASSWORD@HOST:PORT/NAME`, or with
    /// `?host=/DIRECTORY` for a Unix socket. Server and workers share it.
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: DatabaseUrl,

    /// Address and port to listen on. Port 0 takes a free one, which the log names. On a loopback
    /// address the service is open until the first key is made; on another one it needs a key.
    #[arg(
        long,
        env = "ASSAY_LISTEN",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:8080"
    )]
    pub listen: String,

    /// Write the address that is listened on to this file, for the program that started this one
    /// with port 0. The file appears whole.
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,

    /// Directory of the checkpoints. Requests name models by their path below it; nothing outside
    /// is read. Workers see the same files below a root of their own.
    #[arg(long, env = "ASSAY_MODEL_ROOT", value_name = "DIR")]
    pub model_root: PathBuf,

    /// Directory of the datasets, with the same rules as the model root.
    #[arg(long, env = "ASSAY_DATA_ROOT", value_name = "DIR")]
    pub data_root: PathBuf,

    /// Directory that this program writes to: uploaded datasets below `uploads`, digests of files
    /// below `digests`. Servers that run side by side share it, and the workers of all hosts see
    /// the same `uploads` below the state directory of their own.
    #[arg(
        long,
        env = "ASSAY_STATE_DIR",
        value_name = "DIR",
        default_value = "state"
    )]
    pub state_dir: PathBuf,

    /// Largest upload, in bytes.
    #[arg(
        long,
        env = "ASSAY_UPLOAD_LIMIT",
        value_name = "BYTES",
        default_value = "10000000000",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub upload_limit: u64,

    /// Requests that a key may send in a second; five times as many at once after a pause. A service
    /// that is open to its own machine alone does not count them.
    #[arg(
        long,
        env = "ASSAY_RATE_LIMIT",
        value_name = "REQUESTS",
        default_value = "200"
    )]
    pub rate_limit: NonZeroU32,

    /// How many connections there may be, and for how long.
    #[command(flatten)]
    pub connections: Connections,

    /// Take references to a hub of models and datasets (`hf://org/name@revision`,
    /// `hf://datasets/org/name@revision/file.jsonl`) where a request names a path. The hub is
    /// `HF_ENDPOINT`, by default https://huggingface.co. What is private or gated there takes a
    /// token, which is read from `HF_TOKEN`; then whoever may post jobs may use what the token may
    /// read. Workers need the same setting.
    #[arg(long, env = "ASSAY_HUB", value_parser = FalseyValueParser::new())]
    pub hub: bool,

    /// Directory for what is fetched from the hub; other programs for it may share it
    /// [default: `hub` below the state directory].
    #[arg(long, env = "HF_HUB_CACHE", value_name = "DIR")]
    pub hub_cache: Option<PathBuf>,

    /// Delete jobs that ended more than this many days ago, with all that belongs to them but
    /// uploads; not those that a later job is held against or has taken numbers from. By default
    /// all jobs are kept.
    #[arg(
        long,
        env = "ASSAY_KEEP_JOBS",
        value_name = "DAYS",
        value_parser = clap::value_parser!(u32).range(1..=36_500)
    )]
    pub keep_jobs: Option<u32>,

    /// Telling the ends of jobs.
    #[command(flatten)]
    pub webhooks: WebhookSettings,

    /// Form of the log on standard error. `RUST_LOG` sets the level by module; the default is
    /// `info`.
    #[arg(long, env = "ASSAY_LOG", value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,

    /// Do not bring the schema up to date at the start. Then `assay-server migrate` has to run
    /// before a new version serves; until then `/readyz` answers 503.
    #[arg(long, env = "ASSAY_NO_MIGRATE")]
    pub no_migrate: bool,
}

impl Config {
    /// Where what is fetched from the hub is kept.
    pub(crate) fn hub_cache(&self) -> PathBuf {
        let given = self.hub_cache.clone();
        given.unwrap_or_else(|| self.state_dir.join("hub"))
    }
}

/// The settings of `assay-server migrate`.
#[derive(Clone, Debug, Args)]
pub struct MigrateConfig {
    /// The PostgreSQL database of the ledger, as for `serve`.
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: DatabaseUrl,

    /// Form of the log on standard error.
    #[arg(long, env = "ASSAY_LOG", value_name = "FORMAT", default_value = "text")]
    pub log: LogFormat,
}

/// The settings of `assay-server doctor`: those of `serve` that it looks at. What is left out is a
/// check that fails.
#[derive(Clone, Debug, Args)]
pub struct DoctorConfig {
    /// The PostgreSQL database of the ledger, as for `serve`.
    #[arg(long, env = "DATABASE_URL", value_name = "URL", hide_env_values = true)]
    pub database_url: Option<DatabaseUrl>,

    /// Directory of the checkpoints, as for `serve`.
    #[arg(long, env = "ASSAY_MODEL_ROOT", value_name = "DIR")]
    pub model_root: Option<PathBuf>,

    /// Directory of the datasets, as for `serve`.
    #[arg(long, env = "ASSAY_DATA_ROOT", value_name = "DIR")]
    pub data_root: Option<PathBuf>,

    /// Directory that the server writes to, as for `serve`.
    #[arg(
        long,
        env = "ASSAY_STATE_DIR",
        value_name = "DIR",
        default_value = "state"
    )]
    pub state_dir: PathBuf,

    /// Print each check as a JSON object: `check`, `ok`, `detail`, and `remedy` if it fails.
    #[arg(long)]
    pub json: bool,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A database URL, whose password no message shows.
#[derive(Clone)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The URL itself, password included.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The host and port, or the directory of the socket: all that a message may show.
    pub fn host(&self) -> &str {
        const UNNAMED: &str = "the host of DATABASE_URL";
        let Some((_, rest)) = self.0.split_once("://") else {
            return UNNAMED;
        };
        let (before_query, query) = rest.split_once('?').unwrap_or((rest, ""));
        let socket = query.split('&').find_map(|pair| pair.strip_prefix("host="));
        let authority = before_query.split('/').next().unwrap_or_default();
        let host = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        // Without an `@` in front, a `/` in a password that was not percent-encoded would make
        // `USER:PASS` look like a host; `@` further on gives that away.
        let cut_password = before_query[authority.len()..].contains('@');
        match socket.unwrap_or(host) {
            "" => UNNAMED,
            _ if cut_password => UNNAMED,
            host => host,
        }
    }
}

impl From<String> for DatabaseUrl {
    fn from(url: String) -> Self {
        Self(url)
    }
}

impl From<&str> for DatabaseUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl(redacted, at {})", self.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_the_host_and_never_the_password() {
        for (url, host) in [
            (
                "postgres://assay:secret@db.example:5433/assay",
                "db.example:5433",
            ),
            (
                "postgres://assay:se@cret@db.example/assay?sslmode=require",
                "db.example",
            ),
            ("postgres://localhost/assay", "localhost"),
            ("postgres:///assay?user=a&host=/run/assay", "/run/assay"),
            (
                "postgres://assay:se/cret@db.example/assay",
                "the host of DATABASE_URL",
            ),
            ("assay:secret", "the host of DATABASE_URL"),
        ] {
            let url = DatabaseUrl::from(url);
            assert_eq!(url.host(), host);
            assert!(!format!("{url:?}").contains("cret"), "{url:?}");
        }
    }
}
