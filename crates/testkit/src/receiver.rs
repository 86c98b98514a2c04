//! A receiver of webhooks on the loopback interface, which answers as it is told.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use tokio::net::TcpListener;

use crate::{LIMIT, eventually};

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// With this status.
    Status(u16),
    /// With a redirect to this URL.
    Redirect(String),
    /// Not at all.
    Never,
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Received {
    /// The text of a header.
    ///
    /// # Panics
    /// When it is missing, or no text.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        let value = value.unwrap_or_else(|| panic!("there is no header {name}"));
        value.to_str().expect("headers of webhooks are ASCII")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is something else.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

#[derive(Default)]
struct Inner {
    replies: Mutex<VecDeque<Reply>>,
    received: Mutex<Vec<Received>>,
}

/// A receiver, for as long as the runtime of the test runs.
#[derive(Clone)]
pub struct Receiver {
    /// The port on 127.0.0.1.
    pub port: u16,
    inner: Arc<Inner>,
}

impl Receiver {
    /// Starts one that gives these replies in turn, and 204 from then on.
    ///
    /// # Panics
    /// When the machine has no free port.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let inner = Arc::new(Inner {
            replies: Mutex::new(replies.into_iter().collect()),
            received: Mutex::default(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let router = Router::new().fallback(answer).with_state(inner.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        Self { port, inner }
    }

    /// The URL of its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// What has come so far.
    pub fn received(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// Waits until so many requests have come, and returns all of them.
    pub async fn gets(&self, count: usize) -> Vec<Received> {
        eventually(&format!("{count} requests"), LIMIT, async || {
            Some(self.received()).filter(|received| received.len() >= count)
        })
        .await
    }
}

async fn answer(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let reply = inner.replies.lock().unwrap().pop_front();
    inner
        .received
        .lock()
        .unwrap()
        .push(Received { headers, body });
    match reply.unwrap_or(Reply::Status(204)) {
        Reply::Status(status) => StatusCode::from_u16(status)
            .expect("a status has three digits")
            .into_response(),
        Reply::Redirect(url) => (StatusCode::FOUND, [(header::LOCATION, url)]).into_response(),
        Reply::Never => pending().await,
    }
}
