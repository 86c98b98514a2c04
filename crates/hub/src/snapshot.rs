//! A repository at a commit: which files it has.

use reqwest::Response;
use serde::{Deserialize, Serialize};

use crate::client;
use crate::digest::{Digest, is_hex};
use crate::reference::check_path;
use crate::{HubError, Repository};

/// The most bytes of a list of files. A repository of ten thousand files has two megabytes.
const LIST_LIMIT: usize = 64 << 20;

/// A repository at a commit, with the list of its files. A commit never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The repository.
    pub repository: Repository,
    /// The commit: 40 hexadecimal digits.
    pub commit: String,
    /// The files, as the hub lists them. Each path stays within the directory it is joined to.
    pub files: Vec<RemoteFile>,
}

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// Where it is in the repository; `/` separates.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// What its bytes are; nothing if the hub does not say, and then it is not fetched.
    pub digest: Option<Digest>,
}

impl Snapshot {
    /// The file at a path.
    pub fn file(&self, path: &str) -> Option<&RemoteFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether everything of it that becomes a name in the cache stays within the cache: it may
    /// have come from elsewhere than [`read`].
    pub(crate) fn check(&self) -> Result<(), HubError> {
        let refuse = |name: &str, detail: &str| HubError::UnsafeName {
            repository: self.repository.clone(),
            file: name.to_owned(),
            detail: detail.to_owned(),
        };
        if !self.repository.is_sound() {
            return Err(refuse(
                self.repository.name(),
                "the repository's name is none",
            ));
        }
        if !is_commit(&self.commit) {
            return Err(refuse(&self.commit, "it is not a commit"));
        }
        for file in &self.files {
            check_path(&file.path).map_err(|problem| refuse(&file.path, &problem.to_string()))?;
            if file
                .digest
                .as_ref()
                .is_some_and(|digest| !digest.is_sound())
            {
                return Err(refuse(&file.path, "its digest is none"));
            }
        }
        Ok(())
    }
}

/// Whether a text is a whole commit, which names the same files for ever.
pub(crate) fn is_commit(revision: &str) -> bool {
    is_hex(revision, 40)
}

#[derive(Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl From<Sibling> for RemoteFile {
    fn from(sibling: Sibling) -> Self {
        // The git object of a file in large-file storage is a pointer, not the file.
        let (size, digest) = match sibling.lfs {
            Some(lfs) => (Some(lfs.size), Some(Digest::Sha256(lfs.sha256))),
            None => (sibling.size, sibling.blob_id.map(Digest::Git)),
        };
        Self {
            path: sibling.rfilename,
            size: size.unwrap_or(0),
            // A digest without a size could not bound what is received.
            digest: digest.filter(|_| size.is_some()),
        }
    }
}

/// Reads the hub's answer to what a revision is.
pub(crate) async fn read(
    repository: &Repository,
    mut response: Response,
) -> Result<Snapshot, HubError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| client::unreachable(&error))?
    {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > LIST_LIMIT {
            let detail = format!("a list of files of more than {LIST_LIMIT} bytes");
            return Err(client::answer(response.url(), detail));
        }
    }
    let listing: Listing = serde_json::from_slice(&bytes)
        .map_err(|error| client::answer(response.url(), format!("no list of files ({error})")))?;
    if !is_commit(&listing.sha) {
        return Err(client::answer(response.url(), "a commit that is none"));
    }
    let snapshot = Snapshot {
        repository: repository.clone(),
        commit: listing.sha,
        files: listing.siblings.into_iter().map(Into::into).collect(),
    };
    snapshot.check()?;
    Ok(snapshot)
}
