//! A hub on the loopback interface, with a second port for large files, which fails on request.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

/// The token that may read what is private.
pub const TOKEN: &str = "hf_right";
const CHUNK: usize = 64 << 10;

/// A file as the hub lists it; what is served may differ.
#[derive(Clone)]
pub struct File {
    /// What its digest is of.
    pub bytes: Bytes,
    /// What is sent.
    pub served: Bytes,
    /// Whether it is in large-file storage, at the second port.
    pub lfs: bool,
    /// What the list of files says.
    pub listed: Listed,
}

/// What the list of files says of a file.
#[derive(Clone, Copy, PartialEq)]
pub enum Listed {
    /// Size and digest.
    Whole,
    /// Only the size.
    WithoutDigest,
    /// This size.
    WithSize(u64),
}

/// A file of the repository itself.
pub fn small(text: &str) -> File {
    file(Bytes::copy_from_slice(text.as_bytes()), false)
}

/// A file in large-file storage, of as many bytes that are the same each time.
pub fn large(size: usize) -> File {
    let bytes: Bytes = (0..size)
        .map(|at| u8::try_from((at * 31 + at / 251) % 256).unwrap())
        .collect();
    file(bytes, true)
}

/// A file of these bytes, in large-file storage or not.
pub fn file(bytes: Bytes, lfs: bool) -> File {
    File {
        served: bytes.clone(),
        bytes,
        lfs,
        listed: Listed::Whole,
    }
}

/// Who may read a repository.
#[derive(Clone, Copy, Default, PartialEq)]
pub enum Access {
    /// Everyone.
    #[default]
    Public,
    /// Who has the token.
    Private,
    /// Nobody has been given access; who has the token may see what there is.
    Gated,
}

#[derive(Clone, Default)]
struct Repository {
    access: Access,
    branches: BTreeMap<String, String>,
    commits: BTreeMap<String, BTreeMap<String, File>>,
}

/// What happens to the next answer with a file's bytes.
#[derive(Clone, Copy)]
pub enum Fault {
    /// The connection breaks after so many bytes.
    Cut(usize),
    /// Nothing comes after so many bytes.
    Hold(usize),
    /// The range is ignored.
    Whole,
    /// Only a status.
    Status(u16),
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Whether it came to the second port.
    pub cdn: bool,
    /// The first byte that it asks for.
    pub from: u64,
    /// Whether it has a token.
    pub authorized: bool,
    /// Bytes of the body that went out.
    pub sent: Arc<AtomicU64>,
}

#[derive(Default)]
struct Inner {
    repositories: Mutex<BTreeMap<String, Repository>>,
    faults: Mutex<VecDeque<Fault>>,
    seen: Mutex<Vec<Seen>>,
    cdn: Mutex<String>,
}

/// A hub with its repositories, for as long as the runtime of the test runs.
#[derive(Clone)]
pub struct Server {
    /// What `HF_ENDPOINT` is to be.
    pub url: String,
    inner: Arc<Inner>,
}

impl Server {
    /// Starts a hub without repositories.
    pub async fn start() -> Self {
        let inner = Arc::<Inner>::default();
        let hub = serve(Router::new().fallback(hub).with_state(inner.clone())).await;
        let cdn = serve(Router::new().fallback(cdn).with_state(inner.clone())).await;
        *inner.cdn.lock().unwrap() = format!("http://{cdn}");
        Self {
            url: format!("http://{hub}"),
            inner,
        }
    }

    /// Makes a commit of a repository, such as `o/n` or `datasets/o/n`, and `branch` be at it.
    pub fn commit<'a>(
        &self,
        repository: &str,
        branch: &str,
        files: impl IntoIterator<Item = (&'a str, File)>,
    ) -> String {
        let mut repositories = self.inner.repositories.lock().unwrap();
        let repository = repositories.entry(repository.to_owned()).or_default();
        let files = files.into_iter();
        let files: BTreeMap<String, File> =
            files.map(|(path, file)| (path.to_owned(), file)).collect();
        let commit = git(format!("{branch} {}", repository.commits.len()).as_bytes());
        repository.commits.insert(commit.clone(), files);
        repository
            .branches
            .insert(branch.to_owned(), commit.clone());
        commit
    }

    /// Sets who may read a repository.
    pub fn restrict(&self, repository: &str, access: Access) {
        let mut repositories = self.inner.repositories.lock().unwrap();
        repositories.get_mut(repository).unwrap().access = access;
    }

    /// Serves the right bytes from now on.
    pub fn mend(&self) {
        let mut repositories = self.inner.repositories.lock().unwrap();
        let commits = repositories
            .values_mut()
            .flat_map(|repository| repository.commits.values_mut());
        for file in commits.flat_map(BTreeMap::values_mut) {
            file.served = file.bytes.clone();
        }
    }

    /// Has the next answers with bytes fail so, in this order.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.inner.faults.lock().unwrap().extend(faults);
    }

    /// The requests since the last call.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.inner.seen.lock().unwrap())
    }
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, router).into_future());
    address
}

async fn hub(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let headers = request.headers();
    let token = headers
        .get(header::AUTHORIZATION)
        .map(|value| value.to_str().unwrap().to_owned());
    let sent = inner.see(false, headers);

    let (name, rest) = if let Some(path) = path.strip_prefix("/api/") {
        let (name, revision) = path.split_once("/revision/").unwrap();
        let name = name.strip_prefix("models/").unwrap_or(name);
        assert_eq!(request.uri().query(), Some("blobs=true"));
        (name, (revision, None))
    } else {
        let (name, rest) = path[1..].split_once("/resolve/").unwrap();
        let (revision, path) = rest.split_once('/').unwrap();
        (name, (revision, Some(path.replace("%20", " "))))
    };
    let repository = inner.repositories.lock().unwrap().get(name).cloned();
    let refuse = |status: u16, code: &str| {
        (
            StatusCode::from_u16(status).unwrap(),
            [("x-error-code", code.to_owned())],
            "{}",
        )
            .into_response()
    };
    let right = token.as_deref() == Some(&format!("Bearer {TOKEN}"));
    if token.is_some() && !right {
        return refuse(401, "");
    }
    let unknown = if right { 404 } else { 401 };
    let Some(repository) = repository else {
        return refuse(unknown, "RepoNotFound");
    };
    match repository.access {
        Access::Private if !right => return refuse(401, "RepoNotFound"),
        Access::Gated if rest.1.is_some() || !right => {
            return refuse(if right { 403 } else { 401 }, "GatedRepo");
        }
        _ => {}
    }
    let revision = rest.0.replace("%2F", "/");
    let commit = repository.branches.get(&revision).unwrap_or(&revision);
    let Some(files) = repository.commits.get(commit) else {
        return refuse(404, "RevisionNotFound");
    };
    let Some(path) = rest.1 else {
        return list(commit, files).into_response();
    };
    let Some(file) = files.get(&path) else {
        return refuse(404, "EntryNotFound");
    };
    if file.lfs {
        let digest = sha256(&file.bytes);
        let location = format!("{}/{digest}?signature=secret", inner.cdn.lock().unwrap());
        let headers = [
            ("location", location),
            ("x-repo-commit", commit.clone()),
            ("x-linked-etag", format!("\"{digest}\"")),
            ("x-linked-size", file.bytes.len().to_string()),
        ];
        return (StatusCode::FOUND, headers).into_response();
    }
    let etag = format!("\"{}\"", git(&file.bytes));
    let headers = [("x-repo-commit", commit.clone()), ("etag", etag)];
    let bytes = inner.bytes(&file.served, request.headers(), &sent);
    (headers, bytes).into_response()
}

async fn cdn(State(inner): State<Arc<Inner>>, request: Request) -> Response {
    let path = request.uri().path();
    let sent = inner.see(true, request.headers());
    let served = inner
        .repositories
        .lock()
        .unwrap()
        .values()
        .flat_map(|repository| repository.commits.values())
        .flat_map(BTreeMap::values)
        .find(|file| file.lfs && sha256(&file.bytes) == path[1..])
        .map(|file| file.served.clone());
    inner.bytes(&served.unwrap(), request.headers(), &sent)
}

impl Inner {
    fn see(&self, cdn: bool, headers: &HeaderMap) -> Arc<AtomicU64> {
        let sent = Arc::<AtomicU64>::default();
        self.seen.lock().unwrap().push(Seen {
            cdn,
            from: from(headers).unwrap_or(0),
            authorized: headers.contains_key(header::AUTHORIZATION),
            sent: sent.clone(),
        });
        sent
    }

    fn bytes(&self, whole: &Bytes, headers: &HeaderMap, sent: &Arc<AtomicU64>) -> Response {
        let fault = self.faults.lock().unwrap().pop_front();
        let from = match fault {
            Some(Fault::Whole) => None,
            Some(Fault::Status(status)) => {
                return StatusCode::from_u16(status).unwrap().into_response();
            }
            _ => from(headers),
        };
        let start = usize::try_from(from.unwrap_or(0)).unwrap();
        if start > whole.len() {
            return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
        }
        let bytes = whole.slice(start..);
        let length = bytes.len();
        let (end, last) = match fault {
            Some(Fault::Cut(end)) => (end.min(length), Some(false)),
            Some(Fault::Hold(end)) => (end.min(length), Some(true)),
            _ => (length, None),
        };
        let sent = sent.clone();
        let chunks = (0..end).step_by(CHUNK).map(move |at| {
            let chunk = bytes.slice(at..end.min(at + CHUNK));
            sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            Ok::<_, std::io::Error>(chunk)
        });
        let body = match last {
            None => Body::from_stream(stream::iter(chunks)),
            Some(false) => Body::from_stream(stream::iter(chunks).chain(stream::once(broken()))),
            Some(true) => Body::from_stream(stream::iter(chunks).chain(stream::pending())),
        };
        let mut response = body.into_response();
        let headers = response.headers_mut();
        headers.insert(header::ACCEPT_RANGES, "bytes".parse().unwrap());
        headers.insert(header::CONTENT_LENGTH, length.into());
        if from.is_some() {
            let range = format!("bytes {start}-{}/{}", whole.len() - 1, whole.len());
            headers.insert(header::CONTENT_RANGE, range.parse().unwrap());
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }
}

/// What has been given to the server goes out while it waits for more.
async fn broken() -> Result<Bytes, std::io::Error> {
    tokio::task::yield_now().await;
    Err(std::io::ErrorKind::BrokenPipe.into())
}

fn from(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::RANGE)?.to_str().unwrap();
    let from = range.strip_prefix("bytes=")?.strip_suffix('-')?;
    from.parse().ok()
}

fn list(commit: &str, files: &BTreeMap<String, File>) -> String {
    let siblings: Vec<serde_json::Value> = files
        .iter()
        .map(|(path, file)| {
            let size = match file.listed {
                Listed::WithSize(size) => size,
                _ => file.bytes.len() as u64,
            };
            let mut sibling = serde_json::json!({ "rfilename": path, "size": size });
            if file.listed != Listed::WithoutDigest {
                // The object of a large file is its pointer's, which nothing may take for its own.
                sibling["blobId"] = git(if file.lfs { b"pointer" } else { &file.bytes }).into();
                if file.lfs {
                    let sha256 = sha256(&file.bytes);
                    sibling["lfs"] =
                        serde_json::json!({ "sha256": sha256, "size": size, "pointerSize": 135 });
                }
            }
            sibling
        })
        .collect();
    serde_json::json!({ "id": "o/n", "sha": commit, "siblings": siblings }).to_string()
}

fn git(bytes: &[u8]) -> String {
    let header = format!("blob {}\0", bytes.len());
    hex(&Sha1::new_with_prefix(header).chain_update(bytes).finalize())
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
