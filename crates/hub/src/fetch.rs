//! Receiving files: continued where they stopped, checked, and only then given their names.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{TryStreamExt, stream};
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::client::{self, Asked, Client, Patience};
use crate::partial::Partial;
use crate::{Digest, HubError, RemoteFile, Snapshot};

/// Files received at the same time: one connection seldom fills a network.
const CONCURRENT: usize = 4;

/// How far a fetch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// Of which file something has come.
    pub file: &'a str,
    /// Bytes of all wanted files that are there. It goes back where a server cannot continue a
    /// file.
    pub done: u64,
    /// Bytes of all wanted files.
    pub total: u64,
}

type Wanted<'a> = (&'a RemoteFile, &'a Digest);

/// The files of a snapshot that are wanted, if they can be fetched.
pub(crate) fn select(
    snapshot: &Snapshot,
    wanted: impl Fn(&str) -> bool,
    limit: u64,
) -> Result<Vec<Wanted<'_>>, HubError> {
    let repository = || snapshot.repository.clone();
    let files: Vec<Wanted<'_>> = snapshot
        .files
        .iter()
        .filter(|file| wanted(&file.path))
        .map(|file| match &file.digest {
            Some(digest) => Ok((file, digest)),
            None => Err(HubError::NoDigest {
                repository: repository(),
                file: file.path.clone(),
            }),
        })
        .collect::<Result<_, _>>()?;
    let needed = total(&files);
    if needed > limit {
        return Err(HubError::TooLarge {
            repository: repository(),
            needed,
            limit,
        });
    }
    Ok(files)
}

/// One call of [`Hub::fetch`](crate::Hub::fetch).
pub(crate) struct Fetch<'a> {
    pub(crate) client: Option<&'a Client>,
    pub(crate) cache: &'a Cache,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) stop: CancellationToken,
    pub(crate) progress: &'a (dyn Fn(Progress<'_>) + Sync),
    pub(crate) done: AtomicU64,
    pub(crate) total: u64,
}

impl Fetch<'_> {
    pub(crate) async fn run(&self, files: Vec<Wanted<'_>>) -> Result<PathBuf, HubError> {
        let (here, missing): (Vec<Wanted<'_>>, Vec<_>) = files
            .into_iter()
            .partition(|(file, digest)| self.cache.has(digest, file.size));
        for (file, digest) in here {
            self.cache.link(&self.snapshot.commit, file, digest)?;
            self.moved(file, 0, file.size);
        }
        if !missing.is_empty() {
            self.receive_all(missing).await?;
        }
        Ok(self.cache.snapshot(&self.snapshot.commit))
    }

    async fn receive_all(&self, files: Vec<Wanted<'_>>) -> Result<(), HubError> {
        let Some(client) = self.client else {
            return Err(HubError::Missing {
                repository: self.snapshot.repository.clone(),
                files: files.iter().map(|(file, _)| file.path.clone()).collect(),
            });
        };
        let missing = files.iter().map(|(file, digest)| {
            let found = fs::metadata(self.cache.incomplete(digest));
            file.size
                .saturating_sub(found.map_or(0, |found| found.len()))
        });
        self.cache.check_space(sum(missing))?;
        stream::iter(files.into_iter().map(Ok))
            .try_for_each_concurrent(CONCURRENT, async |(file, digest)| {
                self.place(client, file, digest).await?;
                self.cache.link(&self.snapshot.commit, file, digest)
            })
            .await
    }

    /// Makes a file's blob be there.
    async fn place(
        &self,
        client: &Client,
        file: &RemoteFile,
        digest: &Digest,
    ) -> Result<(), HubError> {
        let lock = self.cache.lock(digest).await?;
        if self.cache.has(digest, file.size) {
            self.moved(file, 0, file.size);
            return Ok(());
        }
        let path = self.cache.incomplete(digest);
        let partial = Arc::new(Partial::open(path, lock)?);
        self.receive(client, file, &partial).await?;
        let found = partial.digest(digest, file.size, &self.stop).await?;
        if found != digest.hex() {
            partial.remove()?;
            return Err(HubError::Damaged {
                repository: self.snapshot.repository.clone(),
                file: file.path.clone(),
                expected: digest.hex().to_owned(),
                found,
            });
        }
        partial.rename(&self.cache.blob(digest))
    }

    /// Receives what is missing of a file, in as many requests as it takes while each brings some.
    async fn receive(
        &self,
        client: &Client,
        file: &RemoteFile,
        partial: &Arc<Partial>,
    ) -> Result<(), HubError> {
        let mut have = partial.length()?;
        if have > file.size {
            partial.begin_anew()?;
            have = 0;
        }
        self.moved(file, 0, have);
        let mut patience = Patience::default();
        while have < file.size {
            let before = have;
            let result = self.receive_some(client, file, partial, &mut have).await;
            if have > before {
                patience = Patience::default();
            }
            if let Err(error) = result {
                patience.wait(error).await?;
            }
        }
        Ok(())
    }

    /// One request, from byte `have` on.
    async fn receive_some(
        &self,
        client: &Client,
        file: &RemoteFile,
        partial: &Arc<Partial>,
        have: &mut u64,
    ) -> Result<(), HubError> {
        let asked = Asked::File {
            commit: &self.snapshot.commit,
            path: &file.path,
        };
        let mut response = client.get(&self.snapshot.repository, asked, *have).await?;
        let url = response.url().clone();
        if begins_at(&response) != Some(*have) {
            // A server that cannot continue sends the whole.
            partial.begin_anew()?;
            self.moved(file, *have, 0);
            *have = 0;
            if begins_at(&response) != Some(0) {
                return Err(client::answer(&url, "another part than was asked for"));
            }
        }
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| client::unreachable(&error))?
        {
            let (before, missing) = (*have, file.size - *have);
            if chunk.len() as u64 > missing {
                let detail = format!("more than the {} bytes that are listed", file.size);
                return Err(client::answer(&url, detail));
            }
            *have += chunk.len() as u64;
            partial.append(chunk, missing).await?;
            self.moved(file, before, *have);
        }
        if *have < file.size {
            return Err(HubError::Unreachable {
                url: client::bare(&url),
                detail: format!("it ended after {have} of {} bytes", file.size),
            });
        }
        Ok(())
    }

    fn moved(&self, file: &RemoteFile, from: u64, to: u64) {
        // Adding wraps around, which takes away where a file begins anew.
        let change = to.wrapping_sub(from);
        let done = self.done.fetch_add(change, Ordering::Relaxed);
        (self.progress)(Progress {
            file: &file.path,
            done: done.wrapping_add(change),
            total: self.total,
        });
    }
}

/// Bytes of files.
pub(crate) fn total(files: &[Wanted<'_>]) -> u64 {
    sum(files.iter().map(|(file, _)| file.size))
}

/// Sizes are what a server says; their sum need not fit.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// The first byte of an answer within its file.
fn begins_at(response: &Response) -> Option<u64> {
    match response.status() {
        StatusCode::PARTIAL_CONTENT => response
            .headers()
            .get(CONTENT_RANGE)?
            .to_str()
            .ok()?
            .strip_prefix("bytes ")?
            .split('-')
            .next()?
            .parse()
            .ok(),
        StatusCode::OK => Some(0),
        _ => None,
    }
}
