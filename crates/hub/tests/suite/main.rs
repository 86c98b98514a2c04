//! The crate against a hub of its own on the loopback interface.

mod damage;
mod fetch;
mod processes;
mod resolve;

use std::path::Path;

use assay_hub::{Hub, HubError, Progress, Reference, Settings, Snapshot};
use assay_testkit::hub::{Server, TOKEN, large, small};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A server, and a cache that is empty at first.
struct Fixture {
    server: Server,
    cache: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        Self {
            server: Server::start().await,
            cache: TempDir::new().unwrap(),
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            cache: self.cache.path().to_owned(),
            endpoint: self.server.url.clone(),
            token: None,
            offline: false,
            limit: u64::MAX,
        }
    }

    fn hub(&self) -> Hub {
        Hub::new(&self.settings()).unwrap()
    }

    fn with_token(&self) -> Hub {
        let token = Some(TOKEN.to_owned());
        Hub::new(&Settings {
            token,
            ..self.settings()
        })
        .unwrap()
    }

    /// Any server that is asked would be seen.
    fn offline(&self) -> Hub {
        Hub::new(&Settings {
            offline: true,
            ..self.settings()
        })
        .unwrap()
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.cache.path().join(path)
    }
}

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

/// Every file of a snapshot.
async fn fetch_all(hub: &Hub, snapshot: &Snapshot) -> Result<std::path::PathBuf, HubError> {
    let cancel = CancellationToken::new();
    hub.fetch(snapshot, |_| true, &|_: Progress<'_>| {}, &cancel)
        .await
}

async fn resolve_and_fetch(hub: &Hub, text: &str) -> Result<std::path::PathBuf, HubError> {
    let snapshot = hub.resolve(&reference(text)).await?;
    fetch_all(hub, &snapshot).await
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A model of two small files and a large one.
fn model(server: &Server, size: usize) -> String {
    server.commit(
        "o/n",
        "main",
        [
            ("config.json", small("{}")),
            ("docs/a b.txt", small("text")),
            ("model.safetensors", large(size)),
        ],
    )
}
