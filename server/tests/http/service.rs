//! A server of its own for each test.

use std::fs;
use std::num::NonZeroU32;
use std::time::Duration;

use assay_api::{CreatedKey, ErrorCode, NewKey, Problem, Scope};
use assay_server::{Config, Connections, LogFormat, WebhookSettings, run};
use assay_store::{Actor, ProjectId, ProjectStore, Store};
use assay_testkit::{LIMIT, Roots, TestDatabase};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Of services that others reach.
pub(crate) const ADMIN_KEY: &str = "assay_0123456789abcdef0123456789abcdef";

/// Largest upload of these servers.
pub(crate) const UPLOAD_LIMIT: u64 = 1 << 20;

/// More requests a second than a test sends.
const RATE_LIMIT: u32 = 1_000_000;

/// More connections than a test makes, for longer than it runs.
pub(crate) const CONNECTIONS: Connections = Connections {
    max_connections: 1000,
    idle_timeout: 600,
};

/// The settings of webhooks of the program.
const WEBHOOKS: WebhookSettings = WebhookSettings {
    webhook_allow: Vec::new(),
    webhook_timeout: Duration::from_secs(15),
    webhook_retry: Duration::from_secs(5),
};

pub(crate) struct Service {
    pub(crate) address: String,
    pub(crate) store: Store,
    pub(crate) roots: Roots,
    http: Client,
    database: TestDatabase,
    config: Config,
    running: Vec<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(config: Config, listener: TcpListener) -> Self {
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(run(config, listener, async {
            let _ = stopped.await;
        }));
        Self { stop, ended }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        let ended = tokio::time::timeout(Duration::from_mins(1), self.ended).await;
        ended.unwrap().unwrap().unwrap();
    }
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::start_as("127.0.0.1:0", |_| ()).await
    }

    /// A server with other settings of its connections.
    pub(crate) async fn with(connections: Connections) -> Self {
        Self::start_as("127.0.0.1:0", |config| config.connections = connections).await
    }

    /// A server that others reach, with the key [`ADMIN_KEY`].
    pub(crate) async fn start_for_others() -> Self {
        Self::start_as("0.0.0.0:0", |_| ()).await
    }

    /// A server that takes so many requests a second of a key.
    pub(crate) async fn with_rate_limit(rate_limit: u32) -> Self {
        let rate_limit = NonZeroU32::new(rate_limit).unwrap();
        Self::start_as("127.0.0.1:0", |config| config.rate_limit = rate_limit).await
    }

    /// A server with other settings of its webhooks.
    pub(crate) async fn start_telling(webhooks: WebhookSettings) -> Self {
        Self::start_as("127.0.0.1:0", |config| config.webhooks = webhooks).await
    }

    async fn start_as(listen: &str, change: impl FnOnce(&mut Config)) -> Self {
        let (database, roots) = (TestDatabase::fresh().await, Roots::new());
        roots.add_model("llama_gqa");
        let listener = TcpListener::bind(listen).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let mut config = Config {
            database_url: database.url().into(),
            listen: listen.to_owned(),
            address_file: None,
            model_root: roots.models(),
            data_root: roots.data(),
            state_dir: roots.state(),
            upload_limit: UPLOAD_LIMIT,
            rate_limit: NonZeroU32::new(RATE_LIMIT).unwrap(),
            connections: CONNECTIONS,
            hub: false,
            hub_cache: None,
            keep_jobs: None,
            webhooks: WEBHOOKS,
            log: LogFormat::Text,
            no_migrate: false,
        };
        change(&mut config);
        let store = Store::connect(database.url(), 2).await.unwrap();
        // Before the server, so that its first answer finds the tables.
        store.migrate().await.unwrap();
        if !listen.starts_with("127.") {
            let admin = new_key(Scope::Admin);
            let actor = actor(ProjectId::DEFAULT);
            let token = ADMIN_KEY.parse().unwrap();
            let stored = store.within(actor).store_key(&admin, &token).await;
            assert!(stored.unwrap().is_some());
        }
        let first = Running::start(config.clone(), listener);
        let http = Client::builder().timeout(LIMIT).build().unwrap();
        Self {
            address,
            store,
            roots,
            http,
            database,
            config,
            running: vec![first],
        }
    }

    /// Starts another server on the same ledger, which nobody asks anything.
    pub(crate) async fn start_another(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.running
            .push(Running::start(self.config.clone(), listener));
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    /// A request with a key.
    pub(crate) fn request_as(&self, key: &str, method: Method, path: &str) -> RequestBuilder {
        self.request(method, path).bearer_auth(key)
    }

    /// The ledger as a project sees it.
    pub(crate) fn within(&self, project: ProjectId) -> ProjectStore {
        self.store.within(actor(project))
    }

    /// Makes a project.
    pub(crate) async fn project(&self, name: &str) -> ProjectId {
        assert!(self.store.create_project(name).await.unwrap());
        self.store.project_named(name).await.unwrap().unwrap().id
    }

    /// Makes a key of a project.
    pub(crate) async fn key(&self, project: ProjectId, scope: Scope) -> CreatedKey {
        let created = self.within(project).create_key(&new_key(scope)).await;
        created.unwrap()
    }

    pub(crate) async fn send(&self, method: Method, path: &str) -> Response {
        self.request(method, path).send().await.unwrap()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let response = self.send(Method::GET, path).await;
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.unwrap()
    }

    pub(crate) async fn put(&self, name: &str, body: impl Into<reqwest::Body>) -> Response {
        let request = self.request(Method::PUT, &format!("/datasets/{name}"));
        request.body(body).send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &serde_json::Value) -> Response {
        let request = self.request(Method::POST, path);
        request.json(body).send().await.unwrap()
    }

    /// The names of the files of uploads, whole and unfinished ones.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.roots.state().join("uploads")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    pub(crate) async fn finish(self) {
        for server in self.running {
            server.stop().await;
        }
        drop(self.store);
        self.database.finish().await;
    }
}

fn actor(project: ProjectId) -> Actor {
    Actor {
        project,
        key: None,
        request: None,
    }
}

pub(crate) fn new_key(scope: Scope) -> NewKey {
    NewKey {
        name: format!("a key to {scope}"),
        scope,
        expires_at: None,
    }
}

/// Code, fields at fault and detail of a refusal.
pub(crate) async fn refusal(response: Response) -> (ErrorCode, Vec<String>, String) {
    let status = response.status().as_u16();
    let problem: Problem = response.json().await.unwrap();
    assert_eq!(status, problem.status, "{problem:?}");
    let fields = problem
        .errors
        .into_iter()
        .map(|error| error.field)
        .collect();
    (problem.code, fields, problem.detail)
}
