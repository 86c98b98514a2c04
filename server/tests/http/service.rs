//! A server of its own for each test.

use std::fs;
use std::time::Duration;

use assay_api::{ErrorCode, Problem};
use assay_server::{Config, Connections, LogFormat, WebhookSettings, run};
use assay_store::Store;
use assay_testkit::{LIMIT, Roots, TestDatabase};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Largest upload of these servers.
pub(crate) const UPLOAD_LIMIT: u64 = 1 << 20;

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
        Self::start_in(CONNECTIONS, WEBHOOKS).await
    }

    /// A server with other settings of its connections.
    pub(crate) async fn with(connections: Connections) -> Self {
        Self::start_in(connections, WEBHOOKS).await
    }

    /// A server with other settings of its webhooks.
    pub(crate) async fn start_telling(webhooks: WebhookSettings) -> Self {
        Self::start_in(CONNECTIONS, webhooks).await
    }

    async fn start_in(connections: Connections, webhooks: WebhookSettings) -> Self {
        let (database, roots) = (TestDatabase::fresh().await, Roots::new());
        roots.add_model("llama_gqa");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let config = Config {
            database_url: database.url().into(),
            listen: address.clone(),
            address_file: None,
            model_root: roots.models(),
            data_root: roots.data(),
            state_dir: roots.state(),
            upload_limit: UPLOAD_LIMIT,
            connections,
            hub: false,
            hub_cache: None,
            keep_jobs: None,
            webhooks,
            log: LogFormat::Text,
            no_migrate: false,
        };
        let store = Store::connect(database.url(), 2).await.unwrap();
        // Before the server, so that its first answer finds the tables.
        store.migrate().await.unwrap();
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
