//! The database of `assay up`.

use std::path::Path;

use assay_postgres::{Cluster, PostgresError, Settings};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::service::{Watched, report};

/// A database to use, and the task that watches it if it is a private one.
pub(super) struct Database {
    pub(super) url: String,
    pub(super) watcher: Option<Watched>,
}

impl Database {
    pub(super) fn existing(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            watcher: None,
        }
    }

    pub(super) async fn private(directory: &Path) -> Result<Self, PostgresError> {
        let settings = Settings {
            directory: directory.to_owned(),
            durable: true,
        };
        let cluster = Cluster::start(&settings).await?;
        let url = cluster.url();
        Ok(Self {
            url,
            watcher: Some(Watched::task(|stop| watch(cluster, stop))),
        })
    }
}

async fn watch(mut cluster: Cluster, mut stop: oneshot::Receiver<()>) {
    let mut backoff = Backoff::new();
    loop {
        let started = Instant::now();
        tokio::select! {
            status = cluster.ended() => report("postgres", status),
            _ = &mut stop => return cluster.stop().await,
        }
        let pause = backoff.after(started.elapsed());
        eprintln!(
            "assay up: starting postgres again in {} s",
            pause.as_secs_f64()
        );
        let restart = async {
            sleep(pause).await;
            // A failed start leaves an ended server, so the loop comes here again.
            if let Err(error) = cluster.restart_immediate().await {
                eprintln!("assay up: {error}");
            }
        };
        tokio::select! {
            () = restart => {}
            _ = &mut stop => return,
        }
    }
}
