//! The HTTP client of the service.

mod error;
mod key;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use assay_api::{JobId, Page};
use indicatif::ProgressBar;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::io::ReaderStream;

pub(crate) use self::error::ClientError;
use self::key::ApiKey;

/// A restarted server is back within this time.
const PATIENCE: Duration = Duration::from_mins(1);
/// The server's own limit for a request is shorter.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);
/// The server's limit for looking at a dataset is shorter, and so is what it takes to make an
/// archive before the answer begins.
const LONG_REQUEST_LIMIT: Duration = Duration::from_mins(11);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Where the server is; part of every command that talks to it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// The server to talk to
    #[arg(
        long,
        value_name = "URL",
        env = "ASSAY_SERVER",
        default_value = "http://127.0.0.1:8080"
    )]
    server: String,

    /// Key of the service; better in the environment, where other users of this machine do not see
    /// it
    #[arg(
        long,
        value_name = "KEY",
        env = "ASSAY_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<ApiKey>,
}

impl ServerArgs {
    /// A client of the server. Nothing is sent yet.
    ///
    /// # Errors
    /// See [`http`].
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        Client::with_key(&self.server, self.api_key.as_ref())
    }
}

/// An HTTP client with the settings of the library.
///
/// # Errors
/// The system has no CA certificates, without which no TLS client can be made.
pub(crate) fn http() -> Result<reqwest::Client, ClientError> {
    http_with(HeaderMap::new())
}

/// The same, which sends these headers along with each request.
fn http_with(headers: HeaderMap) -> Result<reqwest::Client, ClientError> {
    let client = reqwest::Client::builder().default_headers(headers).build();
    client.map_err(|error| ClientError::NoClient {
        cause: format!("{:#}", anyhow::Error::from(error)),
    })
}

/// An answer, as the server wrote it and as values.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) text: String,
    pub(crate) value: T,
}

/// How long to go on when the server does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// A server that refuses the first connection is not there; one that goes away during the
    /// exchange may come back.
    Interrupted,
    /// The server was there a moment ago.
    Always,
}

/// The id of a job on the command line.
pub(crate) fn job_id(text: &str) -> Result<JobId, String> {
    text.parse()
        .map_err(|_| "a job's id is a UUID; `assay jobs` lists them".to_owned())
}

/// `path` with a query of these pairs, those without a value left out.
pub(crate) fn with_query(path: &str, pairs: &[(&str, Option<String>)]) -> String {
    let mut url = Url::parse("http://localhost").expect("a URL");
    for (key, value) in pairs {
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(key, value);
        }
    }
    match url.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    limit: Duration,
    notice: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Client {
    /// A client of the server at a URL. Nothing is sent yet.
    ///
    /// # Errors
    /// See [`http`].
    pub(crate) fn of(server: &str) -> Result<Self, ClientError> {
        Self::with_key(server, None)
    }

    /// The same with a key, if there is one.
    ///
    /// # Errors
    /// See [`http`]; or it is no key.
    fn with_key(server: &str, key: Option<&ApiKey>) -> Result<Self, ClientError> {
        let header = key.map(ApiKey::header).transpose()?.flatten();
        let key = header.map(|header| (AUTHORIZATION, header));
        Ok(Self {
            http: http_with(key.into_iter().collect())?,
            base: server.trim_end_matches('/').to_owned(),
            limit: REQUEST_LIMIT,
            notice: Arc::new(|text| eprintln!("assay: {text}")),
        })
    }

    /// A client that says what goes on through `notice` instead of on stderr.
    pub(crate) fn with_notice(&self, notice: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            notice: Arc::new(notice),
            ..self.clone()
        }
    }

    /// A client that waits as long as the server may look at a checkpoint, a dataset or two jobs.
    pub(crate) fn patient(&self) -> Self {
        Self {
            limit: LONG_REQUEST_LIMIT,
            ..self.clone()
        }
    }

    /// Tells the user what goes on.
    pub(crate) fn say(&self, text: &str) {
        (self.notice)(text);
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        retry: Retry,
    ) -> Result<Answer<T>, ClientError> {
        self.call(Method::GET, path, retry, |request| request).await
    }

    /// Calls an operation. Requests may be sent more than once: each has to be safe to repeat,
    /// by its method or by an idempotency key that `fill` sets.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        retry: Retry,
        fill: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer<T>, ClientError> {
        let url = format!("{}{path}", self.base);
        self.persist(retry, async || {
            let request = fill(self.http.request(method.clone(), &url));
            match exchange(request, self.limit).await {
                Ok((status, text)) => {
                    read(&url, status, text).map_err(|error| Attempt::of(error, status))
                }
                Err(error) => Err(self.unreachable(&error)),
            }
        })
        .await
    }

    /// Follows an endless answer: that to a GET from after the event of id `last` on. None if
    /// nothing comes after it.
    pub(crate) async fn follow(
        &self,
        path: &str,
        last: Option<&str>,
        retry: Retry,
    ) -> Result<Option<Response>, ClientError> {
        let url = format!("{}{path}", self.base);
        self.persist(retry, async || {
            let mut request = self.http.get(&url).header("Accept", "text/event-stream");
            if let Some(last) = last {
                request = request.header("Last-Event-ID", last);
            }
            let sent = request.send().await;
            let response = sent.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok((status != StatusCode::NO_CONTENT).then_some(response));
            }
            let text = response.text().await.unwrap_or_default();
            Err(Attempt::of(refusal(&url, status, &text), status))
        })
        .await
    }

    /// Tries until there is an answer, or waiting for one is vain.
    async fn persist<T>(
        &self,
        retry: Retry,
        attempt: impl AsyncFn() -> Result<T, Attempt>,
    ) -> Result<T, ClientError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pause = FIRST_PAUSE;
        let mut first = true;
        loop {
            let failure = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(failure) if failure.is_final => return Err(failure.error),
                Err(failure) => failure,
            };
            let hopeless = first && failure.final_at_first && retry == Retry::Interrupted;
            if hopeless || Instant::now() + pause > deadline {
                return Err(failure.error);
            }
            if first {
                let seconds = PATIENCE.as_secs();
                self.say(&format!("{}; trying again for {seconds} s", failure.error));
            }
            first = false;
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The first `limit` rows of a list, or all, as the server wrote them; `largest` is the size
    /// of its pages. `pairs` is the query.
    pub(crate) async fn rows(
        &self,
        path: &str,
        pairs: &[(&str, Option<String>)],
        limit: Option<u64>,
        largest: u64,
    ) -> Result<Page<Box<RawValue>>, ClientError> {
        let mut all = Page {
            items: Vec::new(),
            next: None,
        };
        let mut retry = Retry::Interrupted;
        loop {
            let missing = limit.map_or(largest, |limit| limit - all.items.len() as u64);
            let mut pairs = pairs.to_vec();
            pairs.push(("limit", Some(missing.min(largest).to_string())));
            pairs.push(("cursor", all.next.take()));
            let page: Answer<Page<Box<RawValue>>> =
                self.get(&with_query(path, &pairs), retry).await?;
            retry = Retry::Always;
            all.items.extend(page.value.items);
            all.next = page.value.next;
            let enough = limit.is_some_and(|limit| all.items.len() as u64 >= limit);
            if all.next.is_none() || enough {
                return Ok(all);
            }
        }
    }

    /// Sends a file as the body of a PUT, which takes as long as it takes.
    pub(crate) async fn put_file<T: DeserializeOwned>(
        &self,
        path: &str,
        file: &Path,
        bar: &ProgressBar,
    ) -> Result<Answer<T>, ClientError> {
        let unsendable = |cause: std::io::Error| ClientError::Unsendable {
            file: file.display().to_string(),
            cause: cause.to_string(),
        };
        let open = File::open(file).await.map_err(unsendable)?;
        let metadata = open.metadata().await.map_err(unsendable)?;
        if !metadata.is_file() {
            return Err(unsendable(std::io::Error::other("it is not a file")));
        }
        bar.set_length(metadata.len());
        let body = Body::wrap_stream(ReaderStream::with_capacity(
            bar.wrap_async_read(open),
            1 << 16,
        ));
        let url = format!("{}{path}", self.base);
        let request = self
            .http
            .put(&url)
            .header("Content-Type", "application/octet-stream")
            .header("Content-Length", metadata.len())
            .body(body);
        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error).error)?;
        let status = response.status();
        let text = response.text().await;
        read(
            &url,
            status,
            text.map_err(|error| self.unreachable(&error).error)?,
        )
    }

    /// Writes the answer to a GET into `file` and returns its size. A server that falls silent
    /// for a minute is given up.
    pub(crate) async fn download(
        &self,
        path: &str,
        file: &mut File,
        bar: &ProgressBar,
    ) -> Result<u64, ClientError> {
        let url = format!("{}{path}", self.base);
        let broken_off = |cause: String| ClientError::BrokenOff {
            url: url.clone(),
            cause,
        };
        let mut response = self.begin(&url).await?;
        if let Some(bytes) = response.content_length() {
            bar.set_length(bytes);
        }
        let mut written = 0;
        loop {
            let chunk = match timeout(REQUEST_LIMIT, response.chunk()).await {
                Ok(Ok(chunk)) => chunk,
                Ok(Err(error)) => return Err(broken_off(innermost(&error))),
                Err(_) => return Err(broken_off("the server fell silent".to_owned())),
            };
            let Some(chunk) = chunk else { break };
            let stored = file.write_all(&chunk).await;
            stored.map_err(|error| broken_off(format!("cannot write it: {error}")))?;
            written += chunk.len() as u64;
            bar.inc(chunk.len() as u64);
        }
        let stored = file.flush().await;
        stored.map_err(|error| broken_off(format!("cannot write it: {error}")))?;
        Ok(written)
    }

    /// The head of a successful answer.
    async fn begin(&self, url: &str) -> Result<Response, ClientError> {
        let sent = timeout(LONG_REQUEST_LIMIT, self.http.get(url).send()).await;
        let response = sent
            .map_err(|_| ClientError::BrokenOff {
                url: url.to_owned(),
                cause: "the server fell silent".to_owned(),
            })?
            .map_err(|error| self.unreachable(&error).error)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        Err(refusal(url, status, &text))
    }

    fn unreachable(&self, error: &reqwest::Error) -> Attempt {
        Attempt {
            error: ClientError::Unreachable {
                server: self.base.clone(),
                cause: innermost(error),
            },
            is_final: false,
            final_at_first: error.is_connect() || error.is_builder(),
        }
    }
}

/// An attempt that failed.
struct Attempt {
    error: ClientError,
    /// Another one would fail alike.
    is_final: bool,
    /// So it would if this was the first.
    final_at_first: bool,
}

impl Attempt {
    /// That was answered by an error.
    fn of(error: ClientError, status: StatusCode) -> Self {
        Self {
            error,
            is_final: !is_passing(status),
            final_at_first: false,
        }
    }
}

async fn exchange(
    request: RequestBuilder,
    limit: Duration,
) -> reqwest::Result<(StatusCode, String)> {
    let response = request.timeout(limit).send().await?;
    let status = response.status();
    Ok((status, response.text().await?))
}

/// Statuses of a server, or of a proxy in front of it, that is about to be back.
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

fn read<T: DeserializeOwned>(
    url: &str,
    status: StatusCode,
    text: String,
) -> Result<Answer<T>, ClientError> {
    if status.is_success() {
        return match serde_json::from_str(&text) {
            Ok(value) => Ok(Answer { text, value }),
            Err(cause) => Err(ClientError::Unreadable {
                url: url.to_owned(),
                cause,
            }),
        };
    }
    Err(refusal(url, status, &text))
}

fn refusal(url: &str, status: StatusCode, text: &str) -> ClientError {
    match serde_json::from_str(text) {
        Ok(problem) => ClientError::Refused(Box::new(problem)),
        Err(_) => ClientError::NotAssay {
            url: url.to_owned(),
            status,
        },
    }
}

/// reqwest's own text names the URL and "error sending request"; the cause is at the end.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    if error.is_timeout() {
        format!("no answer in time ({cause})")
    } else if error.is_builder() {
        format!("not a URL such as http://127.0.0.1:8080 ({cause})")
    } else {
        cause.to_string()
    }
}

#[cfg(test)]
mod tests {
    use assay_api::Problem;

    use super::*;

    #[test]
    fn a_query_is_escaped() {
        let pairs = [("dataset", Some("a b&c".to_owned())), ("cursor", None)];
        assert_eq!(with_query("/x", &pairs), "/x?dataset=a+b%26c");
        assert_eq!(with_query("/x", &pairs[1..]), "/x");
    }

    #[test]
    fn an_answer_of_something_else_is_told_apart() {
        let page = "<html>".to_owned();
        let error = read::<Problem>("http://x/jobs", StatusCode::NOT_FOUND, page).unwrap_err();
        assert!(matches!(error, ClientError::NotAssay { .. }), "{error}");
    }
}
