//! The hub as Assay sees it: references become snapshots, snapshots become directories.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::client::{self, Asked, Client, Patience};
use crate::fetch::{self, Fetch, Progress};
use crate::snapshot;
use crate::{HubError, Reference, Snapshot, describes_model};

/// The hub that is asked where `HF_ENDPOINT` names no other.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The most bytes of the files that describe a model: they are read into memory.
const DESCRIPTION_LIMIT: u64 = 1 << 30;

/// Where the hub is, who asks and where files are kept.
#[derive(Clone)]
pub struct Settings {
    /// The directory of the cache. Its layout is that of the caches of other programs for the
    /// hub, which may share it; what they put there is taken without checking more than sizes.
    pub cache: PathBuf,
    /// The URL of the hub or of a mirror, usually from `HF_ENDPOINT`.
    pub endpoint: String,
    /// The token of the user, usually from `HF_TOKEN`; needed for what is private or gated. It is
    /// sent to the endpoint's host alone.
    pub token: Option<String>,
    /// Use only what the cache has, and send nothing.
    pub offline: bool,
    /// The most bytes that one [`Hub::fetch`] may ask for.
    pub limit: u64,
}

impl Settings {
    /// The settings that other programs for the hub take from the environment: `HF_ENDPOINT`,
    /// `HF_TOKEN`, and `HF_HUB_OFFLINE`, which is set by 1, true, yes or on. Without a limit.
    pub fn of_environment(cache: &Path) -> Self {
        let of = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let offline = of("HF_HUB_OFFLINE")
            .unwrap_or_default()
            .to_ascii_lowercase();
        Self {
            cache: cache.to_owned(),
            endpoint: of("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()),
            token: of("HF_TOKEN"),
            offline: matches!(&*offline, "1" | "true" | "yes" | "on"),
            limit: u64::MAX,
        }
    }
}

/// Displays everything but the token.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("cache", &self.cache)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "..."))
            .field("offline", &self.offline)
            .field("limit", &self.limit)
            .finish()
    }
}

/// A hub with a cache. Any number of processes may use one cache at the same time.
pub struct Hub {
    cache: PathBuf,
    client: Option<Client>,
    limit: u64,
}

/// Displays the cache alone.
impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub by these settings. Nothing is sent yet.
    ///
    /// # Errors
    /// [`HubError::Setting`] when the endpoint is no URL of a server, the token has characters
    /// that cannot be sent, or the system has no CA certificates.
    pub fn new(settings: &Settings) -> Result<Self, HubError> {
        let client = (!settings.offline)
            .then(|| Client::new(settings))
            .transpose()?;
        Ok(Self {
            cache: settings.cache.clone(),
            client,
            limit: settings.limit,
        })
    }

    /// What a reference stands for now: a commit and its files.
    ///
    /// A branch is asked for anew each time; a commit that was seen before is not, as it cannot
    /// change. Offline, a branch is what it was when it was last asked for.
    ///
    /// # Errors
    /// When the hub refuses or does not have it, cannot be reached in several attempts, answers
    /// what cannot be kept safely, or when the cache does not know it offline.
    pub async fn resolve(&self, reference: &Reference) -> Result<Snapshot, HubError> {
        let snapshot = self.snapshot(reference).await?;
        match reference.path() {
            Some(path) if snapshot.file(path).is_none() => Err(HubError::NoFile {
                repository: snapshot.repository,
                commit: snapshot.commit,
                file: path.to_owned(),
            }),
            _ => Ok(snapshot),
        }
    }

    async fn snapshot(&self, reference: &Reference) -> Result<Snapshot, HubError> {
        let cache = Cache::new(&self.cache, reference.repository());
        let revision = reference.revision();
        if (self.client.is_none() || snapshot::is_commit(revision))
            && let Some(known) = cache.known(reference)?
        {
            return Ok(known);
        }
        let Some(client) = &self.client else {
            return Err(HubError::NotCached(reference.clone()));
        };
        let mut patience = Patience::default();
        let snapshot = loop {
            match ask(client, reference).await {
                Ok(snapshot) => break snapshot,
                Err(error) => patience.wait(error).await?,
            }
        };
        cache.remember(revision, &snapshot)?;
        Ok(snapshot)
    }

    /// Puts the files of a snapshot that are `wanted` by their paths into the cache, and says in
    /// which directory they are: there, each is at its path. What is in the cache already is not
    /// sent again, and what has come of a file before a failure, or a kill, is continued.
    ///
    /// `progress` is called often, from the calling task. It should be quick.
    ///
    /// Every file is checked by its digest before it appears under its name. Several processes may
    /// fetch the same at once: one receives each file, the others wait for it.
    ///
    /// # Errors
    /// As for [`resolve`](Self::resolve); also when a file's digest is not what the hub says,
    /// when there is no space, when the limit is passed, or [`HubError::Cancelled`] soon after
    /// `cancel` is. Dropping the future cancels as well.
    pub async fn fetch(
        &self,
        snapshot: &Snapshot,
        wanted: impl Fn(&str) -> bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
        cancel: &CancellationToken,
    ) -> Result<PathBuf, HubError> {
        self.fetch_within(snapshot, wanted, progress, cancel, self.limit)
            .await
    }

    /// Fetches the files that [describe a model](crate::describes_model), and says in which
    /// directory they are.
    ///
    /// # Errors
    /// As for [`fetch`](Self::fetch); they may have a gigabyte at most.
    pub async fn describe(
        &self,
        snapshot: &Snapshot,
        cancel: &CancellationToken,
    ) -> Result<PathBuf, HubError> {
        let limit = self.limit.min(DESCRIPTION_LIMIT);
        self.fetch_within(snapshot, describes_model, &|_| {}, cancel, limit)
            .await
    }

    /// Where the files of a snapshot are once they are fetched.
    pub fn directory(&self, snapshot: &Snapshot) -> PathBuf {
        Cache::new(&self.cache, &snapshot.repository).snapshot(&snapshot.commit)
    }

    async fn fetch_within(
        &self,
        snapshot: &Snapshot,
        wanted: impl Fn(&str) -> bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
        cancel: &CancellationToken,
        limit: u64,
    ) -> Result<PathBuf, HubError> {
        snapshot.check()?;
        let files = fetch::select(snapshot, wanted, limit)?;
        // Ends what runs on other threads however this future ends.
        let stop = cancel.child_token();
        let _guard = stop.clone().drop_guard();
        let fetch = Fetch {
            client: self.client.as_ref(),
            cache: &Cache::new(&self.cache, &snapshot.repository),
            snapshot,
            stop,
            progress,
            done: AtomicU64::new(0),
            total: fetch::total(&files),
        };
        cancel
            .run_until_cancelled(fetch.run(files))
            .await
            .unwrap_or(Err(HubError::Cancelled))
    }
}

async fn ask(client: &Client, reference: &Reference) -> Result<Snapshot, HubError> {
    let (repository, revision) = (reference.repository(), reference.revision());
    let response = client.get(repository, Asked::Revision(revision), 0).await?;
    let url = response.url().clone();
    let snapshot = snapshot::read(repository, response).await?;
    if snapshot::is_commit(revision) && snapshot.commit != revision {
        let detail = format!("commit {} instead of {revision}", snapshot.commit);
        return Err(client::answer(&url, detail));
    }
    Ok(snapshot)
}
