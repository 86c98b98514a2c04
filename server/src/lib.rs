//! The API server of Assay: HTTP in front of the ledger, and the loop that keeps the ledger tidy.
//!
//! It reads the headers of checkpoints to refuse bad requests at once, but loads no weights and
//! scores nothing. Servers share the ledger and the directory of uploads and keep no state of their
//! own beside them: any number may run side by side.

mod access;
mod admin;
mod app;
mod archive;
mod comparisons;
mod config;
mod connections;
mod database;
mod doctor;
mod edge;
mod error;
mod events;
mod extract;
mod faults;
mod maintenance;
mod metrics;
mod partials;
mod plans;
mod problems;
mod query;
mod receive;
mod remote;
mod report;
mod routes;
mod ui;
mod uploads;
mod validate;
mod webhooks;
mod work;

pub use admin::{KeysConfig, ProjectsConfig, manage_keys, manage_projects};
pub use app::openapi_json;
pub use config::{Config, DatabaseUrl, DoctorConfig, LogFormat, MigrateConfig};
pub use connections::Connections;
pub use doctor::doctor;
pub use webhooks::{Allowed, WebhookSettings};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use assay_checkpoint::{DigestCache, Tokenizers};
use assay_data::Root;
use assay_hub::{Hub, Settings};
use assay_store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::access::{Commons, Gate};
use crate::app::AppState;
use crate::metrics::Metrics;
use crate::partials::Partials;
use crate::uploads::Files;
use crate::webhooks::Receivers;
use crate::work::Heavy;

/// The directory of uploads, below that of the state.
const UPLOADS: &str = "uploads";
/// The directory of digests, below that of the state.
const DIGESTS: &str = "digests";
/// How long open requests may take to end after the shutdown has begun.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(20);

/// Serves the API on `listener` until `shutdown` resolves, then lets open requests end.
///
/// # Errors
/// A root is not a directory, the state directory cannot be written, the hub's settings are
/// refused, the database does not answer (the text names its host), the schema cannot be migrated,
/// or others reach the listener and there is no key.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let cut_off = async {
        shutdown.await;
        tracing::info!("shutting down");
        stop.cancel();
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        outcome = Box::pin(serve(&config, listener, &stop)) => outcome,
        () = cut_off => {
            tracing::warn!("requests still open after {SHUTDOWN_GRACE:?} were cut off");
            Ok(())
        }
    }
}

/// Brings the schema up to this program's.
///
/// # Errors
/// The database does not answer, or its schema is newer than this program.
pub async fn migrate(config: &MigrateConfig) -> anyhow::Result<()> {
    let store = database::connect(&config.database_url).await?;
    store
        .migrate()
        .await
        .context("cannot bring the schema up to date")?;
    tracing::info!(
        database = config.database_url.host(),
        "the schema is up to date"
    );
    Ok(())
}

async fn serve(
    config: &Config,
    listener: TcpListener,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let models = Root::open(&config.model_root).context("--model-root (ASSAY_MODEL_ROOT)")?;
    let data = Root::open(&config.data_root).context("--data-root (ASSAY_DATA_ROOT)")?;
    let hub = config
        .hub
        .then(|| {
            Hub::new(&Settings {
                limit: config.upload_limit,
                ..Settings::of_environment(&config.hub_cache())
            })
        })
        .transpose()
        .context("--hub (ASSAY_HUB)")?
        .map(Arc::new);
    let files = Files::open(&config.state_dir.join(UPLOADS)).with_context(|| {
        format!(
            "--state-dir (ASSAY_STATE_DIR): cannot use {}",
            config.state_dir.display()
        )
    })?;
    let start = async {
        let store = database::connect(&config.database_url).await?;
        if !config.no_migrate {
            store
                .migrate()
                .await
                .context("cannot bring the schema up to date")?;
        }
        anyhow::Ok(store)
    };
    let store = tokio::select! {
        store = start => store?,
        () = stop.cancelled() => return Ok(()),
    };

    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let is_local = address.ip().is_loopback();
    if !is_local {
        require_key(&store, &config.listen).await?;
    }
    if let Some(file) = &config.address_file {
        write_whole(file, &address.to_string()).with_context(|| {
            format!(
                "cannot write {}: give another --address-file",
                file.display()
            )
        })?;
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        database = config.database_url.host(),
        "listening on http://{address}"
    );
    let receivers = Receivers::new(&config.webhooks.webhook_allow);
    let state = AppState {
        commons: Commons::new(store.clone()),
        models,
        data,
        hub,
        files: files.clone(),
        upload_limit: config.upload_limit,
        receivers: receivers.clone(),
        digests: DigestCache::new(&config.state_dir.join(DIGESTS)),
        tokenizers: Tokenizers::default(),
        scratch: config.state_dir.clone(),
        heavy: Heavy::default(),
        metrics: Metrics::new(&store),
        partials: Partials::default(),
        openapi: openapi_json().into(),
        stop: stop.clone(),
    };
    let gate = Gate::new(store.clone(), is_local, config.rate_limit);
    let app = app::app(state, gate);
    tokio::join!(
        connections::serve(listener, app, config.connections, stop),
        maintenance::check_leases(&store, stop),
        maintenance::sweep_uploads(&store, &files, stop),
        maintenance::remove_old_jobs(&store, config.keep_jobs, stop),
        webhooks::deliver(&store, &config.webhooks, receivers, stop),
    );
    Ok(())
}

/// Refuses to listen where others reach the service and nobody has a key. A schema that is not up to
/// date has none either, and then requests are refused one by one.
async fn require_key(store: &Store, listen: &str) -> anyhow::Result<()> {
    if store.ready().await.is_ok() && !store.has_usable_keys().await? {
        bail!(
            "refusing to listen on {listen} as long as there is no valid key: whoever reaches it \
             could use the service. Make one with `assay-server keys create --project default \
             --scope admin --name NAME`, or listen on 127.0.0.1"
        );
    }
    Ok(())
}

/// Readers of `file` see all of `text` or no file.
fn write_whole(file: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = file.with_added_extension("new");
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, file)
}
