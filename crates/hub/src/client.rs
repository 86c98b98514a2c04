//! Requests to the hub, and what its refusals mean.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderValue, RANGE};
use reqwest::{Response, StatusCode, Url};

use crate::{HubError, Kind, Repository, Settings};

const CONNECT: Duration = Duration::from_secs(10);
/// The longest silence of a server within an answer.
const SILENCE: Duration = Duration::from_mins(1);
const ATTEMPTS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// What of a repository is asked for.
#[derive(Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// The commit of a revision and its files.
    Revision(&'a str),
    /// A file at a commit.
    File { commit: &'a str, path: &'a str },
}

pub(crate) struct Client {
    http: reqwest::Client,
    endpoint: Url,
    token: Option<HeaderValue>,
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Result<Self, HubError> {
        let endpoint = Url::parse(&settings.endpoint)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| HubError::Setting {
                setting: "endpoint",
                detail: format!(
                    "is `{}`, which is not the URL of a hub; set HF_ENDPOINT to one such as \
                     https://hub.example",
                    settings.endpoint
                ),
            })?;
        let http = reqwest::Client::builder()
            .user_agent(concat!("assay/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // A hub behind TLS has no reason to redirect to where there is none.
            .https_only(endpoint.scheme() == "https")
            .referer(false)
            .build()
            .map_err(|error| HubError::Setting {
                setting: "endpoint",
                detail: format!(
                    "cannot be used, as no TLS client can be made ({}); install the system's \
                     package of CA certificates",
                    innermost(&error)
                ),
            })?;
        let token = settings
            .token
            .as_deref()
            .filter(|token| !token.is_empty())
            .map(bearer)
            .transpose()?;
        Ok(Self {
            http,
            endpoint,
            token,
        })
    }

    /// Asks once. A file is asked for from byte `from` on.
    ///
    /// The HTTP library takes the token away when it is redirected to another host, port or
    /// scheme: large files are served elsewhere, by signed URLs.
    pub(crate) async fn get(
        &self,
        repository: &Repository,
        asked: Asked<'_>,
        from: u64,
    ) -> Result<Response, HubError> {
        // Digests and ranges are of a file's own bytes.
        let mut request = self
            .http
            .get(self.url(repository, asked))
            .header(ACCEPT_ENCODING, "identity");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        match response.status() {
            status if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(response)
            }
            _ => Err(self.refusal(repository, asked, &response)),
        }
    }

    fn url(&self, repository: &Repository, asked: Asked<'_>) -> Url {
        let mut url = self.endpoint.clone();
        {
            let mut segments = url.path_segments_mut().expect("http URLs have paths");
            segments.pop_if_empty();
            let name = repository.name().split('/');
            // Each is one segment: a slash in a revision is escaped.
            match asked {
                Asked::Revision(revision) => segments
                    .extend(["api", plural(repository.kind())])
                    .extend(name)
                    .extend(["revision", revision]),
                Asked::File { commit, path } => segments
                    .extend((repository.kind() == Kind::Dataset).then_some("datasets"))
                    .extend(name)
                    .extend(["resolve", commit])
                    .extend(path.split('/')),
            };
        }
        if let Asked::Revision(_) = asked {
            url.set_query(Some("blobs=true"));
        }
        url
    }

    fn refusal(&self, repository: &Repository, asked: Asked<'_>, response: &Response) -> HubError {
        let repository = repository.clone();
        let has_token = self.token.is_some();
        let status = response.status();
        let code = response
            .headers()
            .get("x-error-code")
            .and_then(|code| code.to_str().ok())
            .unwrap_or_default();
        match (code, status.as_u16(), asked) {
            ("GatedRepo", ..) => HubError::Gated {
                repository,
                has_token,
            },
            ("RevisionNotFound", _, Asked::Revision(revision)) => HubError::NoRevision {
                repository,
                revision: revision.to_owned(),
            },
            ("EntryNotFound", _, Asked::File { commit, path }) => HubError::NoFile {
                repository,
                commit: commit.to_owned(),
                file: path.to_owned(),
            },
            // Without a token the hub answers 401 for what does not exist, too.
            ("RepoNotFound", ..) | (_, 404, _) => HubError::NotShown {
                repository,
                has_token,
            },
            (_, 401, _) if !has_token => HubError::NotShown {
                repository,
                has_token,
            },
            (_, status @ (401 | 403), _) => HubError::Refused {
                repository,
                status,
                has_token,
            },
            (_, 429, _) => HubError::TooOften { has_token },
            (_, 408 | 500..=599, _) => HubError::Broken {
                url: bare(response.url()),
                status: status.as_u16(),
            },
            _ => answer(response.url(), format!("status {status}")),
        }
    }
}

/// How often something has failed in a row, and how long to wait before it is tried again.
#[derive(Default)]
pub(crate) struct Patience {
    failures: u32,
}

impl Patience {
    /// Waits, or gives the error back when it will not pass or has come too often.
    pub(crate) async fn wait(&mut self, error: HubError) -> Result<(), HubError> {
        self.failures += 1;
        if !error.may_pass() || self.failures == ATTEMPTS {
            return Err(error);
        }
        tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(self.failures - 1)).await;
        Ok(())
    }
}

/// An answer that is not a hub's.
pub(crate) fn answer(url: &Url, detail: impl Into<String>) -> HubError {
    HubError::Answer {
        url: bare(url),
        detail: detail.into(),
    }
}

/// An error of the connection, or of what redirects lead to.
pub(crate) fn unreachable(error: &reqwest::Error) -> HubError {
    HubError::Unreachable {
        url: error.url().map(bare).unwrap_or_default(),
        detail: innermost(error),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, HubError> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| HubError::Setting {
            setting: "token",
            detail: "has characters that no token has; set HF_TOKEN to the token alone".to_owned(),
        })?;
    value.set_sensitive(true);
    Ok(value)
}

fn plural(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "models",
        Kind::Dataset => "datasets",
    }
}

/// A URL without its query, which holds the signature where a file is stored elsewhere.
pub(crate) fn bare(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

/// reqwest's own text is "error sending request"; the cause is at the end of the chain.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() {
        return format!("no answer in time ({cause})");
    }
    cause.to_string()
}
