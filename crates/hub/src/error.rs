//! What can go wrong between the hub and the cache.

use std::io;
use std::path::{Path, PathBuf};

use assay_api::ErrorCode;

use crate::{Reference, ReferenceError, Repository};

/// Why something of the hub is not to be had. Every text names the repository or the file, and
/// what to do about it. None holds the token.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The settings cannot be used.
    #[error("setting `{setting}` {detail}")]
    Setting {
        /// The field of [`Settings`](crate::Settings).
        setting: &'static str,
        /// What is wrong and what would be right.
        detail: String,
    },
    /// The hub shows no such repository to whoever asks. It does not say whether there is one.
    #[error(
        "the hub shows no repository {repository}: either it does not exist, or it is private; \
         check the name, or {}", token_remedy(*.has_token)
    )]
    NotShown {
        /// The repository.
        repository: Repository,
        /// Whether it was asked with a token.
        has_token: bool,
    },
    /// Access is given to those who ask for it.
    #[error(
        "{repository} is gated: ask for access on its page on the hub, then {}",
        token_remedy(*.has_token)
    )]
    Gated {
        /// The repository.
        repository: Repository,
        /// Whether it was asked with a token.
        has_token: bool,
    },
    /// The hub knows who asks and refuses, or does not know the token.
    #[error("the hub refuses access to {repository} ({status}); {}", token_remedy(*.has_token))]
    Refused {
        /// The repository.
        repository: Repository,
        /// 401 or 403.
        status: u16,
        /// Whether it was asked with a token.
        has_token: bool,
    },
    /// There is no such branch, tag or commit.
    #[error("{repository} has no revision `{revision}`; give a branch, a tag or a whole commit")]
    NoRevision {
        /// The repository.
        repository: Repository,
        /// What was asked for.
        revision: String,
    },
    /// There is no such file.
    #[error("{repository} has no file `{file}` at {commit}; check its path")]
    NoFile {
        /// The repository.
        repository: Repository,
        /// The commit.
        commit: String,
        /// The path.
        file: String,
    },
    /// A model without weights in a form that is read.
    #[error(
        "{0} has neither model.safetensors nor an index of safetensors files nor an adapter; \
         choose a repository, or a revision, with safetensors"
    )]
    NoWeights(Repository),
    /// The index of the weights is damaged or contradicts the repository.
    #[error("model.safetensors.index.json of {repository}: {detail}; choose another revision")]
    Index {
        /// The repository.
        repository: Repository,
        /// What is wrong.
        detail: String,
    },
    /// The hub limits how often it is asked.
    #[error("the hub answers that it is asked too often; try again later{}", if *.has_token { "" } else { ", or set HF_TOKEN, with which it allows more" })]
    TooOften {
        /// Whether it was asked with a token.
        has_token: bool,
    },
    /// Nothing answers, or the connection breaks again and again.
    #[error(
        "cannot reach {url}: {detail}; check the network, and HF_ENDPOINT where a mirror is meant"
    )]
    Unreachable {
        /// What was asked for, without its query.
        url: String,
        /// The innermost cause.
        detail: String,
    },
    /// The hub, or a mirror, answers what a hub does not.
    #[error(
        "unexpected answer of {url}: {detail}; check that HF_ENDPOINT is a hub, or try again later"
    )]
    Answer {
        /// What was asked for, without its query.
        url: String,
        /// What is wrong with the answer.
        detail: String,
    },
    /// The server has failed, which may pass.
    #[error("{url} answers with status {status}; try again later")]
    Broken {
        /// What was asked for, without its query.
        url: String,
        /// 408 or 5xx.
        status: u16,
    },
    /// The name of a file would lead out of the cache.
    #[error(
        "{repository} names a file `{file}`, which cannot be kept safely: {detail}; use another repository"
    )]
    UnsafeName {
        /// The repository.
        repository: Repository,
        /// The name.
        file: String,
        /// Why not.
        detail: String,
    },
    /// The hub tells no digest of a file, so what it sends could not be checked.
    #[error(
        "the hub tells no digest of `{file}` of {repository}, and nothing unchecked is used; use a hub or mirror that tells them"
    )]
    NoDigest {
        /// The repository.
        repository: Repository,
        /// The path.
        file: String,
    },
    /// What was received is not what the hub says the file is. It is removed.
    #[error(
        "`{file}` of {repository} is damaged: its digest should be {expected} and is {found}; it \
         was removed, so try again, and check the mirror if it stays so"
    )]
    Damaged {
        /// The repository.
        repository: Repository,
        /// The path.
        file: String,
        /// The hub's digest.
        expected: String,
        /// That of the received bytes.
        found: String,
    },
    /// More bytes than are allowed.
    #[error(
        "the files of {repository} that are needed have {needed} bytes, the limit is {limit}; raise the limit or choose a smaller repository"
    )]
    TooLarge {
        /// The repository.
        repository: Repository,
        /// Bytes of the wanted files.
        needed: u64,
        /// The setting.
        limit: u64,
    },
    /// The cache's file system is full or would become so.
    #[error("no space for {needed} more bytes in {}; free some, or move the cache", .path.display())]
    Full {
        /// Where.
        path: PathBuf,
        /// Bytes that are still missing.
        needed: u64,
    },
    /// The operating system refuses.
    #[error("cannot use {}: {source}; check its owner and its permissions", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The cache lacks what a revision is, and the hub may not be asked.
    #[error(
        "the cache has never seen {0}, and the hub is not asked while offline; fetch it once online"
    )]
    NotCached(Reference),
    /// The cache lacks files, and the hub may not be asked.
    #[error("the cache lacks {} of {repository}, and the hub is not asked while offline; fetch once online", .files.join(", "))]
    Missing {
        /// The repository.
        repository: Repository,
        /// The paths.
        files: Vec<String>,
    },
    /// The text is no reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The caller has cancelled it. What has come stays for the next time.
    #[error("the download was cancelled")]
    Cancelled,
}

impl HubError {
    /// An error of the operating system at a path.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path, needed: 1 }
            }
            _ => Self::Io { path, source },
        }
    }

    /// The code under which a client learns of it, where what the hub does not have, or does not
    /// give, has the code `unreadable`.
    pub fn code(&self, unreadable: ErrorCode) -> ErrorCode {
        match self {
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::TooOften { .. }
            | Self::Answer { .. }
            | Self::Cancelled => ErrorCode::Unavailable,
            Self::Reference(_) => ErrorCode::InvalidRequest,
            Self::Full { .. } => ErrorCode::StorageFull,
            Self::Setting { .. } | Self::Io { .. } => ErrorCode::Internal,
            Self::NotShown { .. }
            | Self::Gated { .. }
            | Self::Refused { .. }
            | Self::NoRevision { .. }
            | Self::NoFile { .. }
            | Self::NoWeights(_)
            | Self::Index { .. }
            | Self::UnsafeName { .. }
            | Self::NoDigest { .. }
            | Self::Damaged { .. }
            | Self::TooLarge { .. }
            | Self::NotCached(_)
            | Self::Missing { .. } => unreadable,
        }
    }

    /// Whether the same request may succeed a moment later.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Broken { .. } | Self::TooOften { .. }
        )
    }
}

fn token_remedy(has_token: bool) -> &'static str {
    if has_token {
        "set HF_TOKEN to a token that may read it"
    } else {
        "set HF_TOKEN to a token that may read it; none is set"
    }
}
