//! Connections: how many there are at once, and how long one keeps its place without a request.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use clap::Args;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Open files that are no connections of clients: those to the database, uploads, checkpoints.
const OTHER_FILES: u64 = 200;

/// The settings of connections.
#[derive(Clone, Copy, Debug, Args)]
pub struct Connections {
    /// Most connections at once. One more waits until another has ended. Where the system allows
    /// fewer open files, so many less 200, and the log says so.
    #[arg(
        long,
        env = "ASSAY_MAX_CONNECTIONS",
        value_name = "COUNT",
        default_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub max_connections: u32,

    /// Seconds after which a connection is closed on which the head of a request has not come. It
    /// should be more than a load balancer in front keeps connections that it does not use.
    #[arg(
        long,
        env = "ASSAY_IDLE_TIMEOUT",
        value_name = "SECONDS",
        default_value = "75",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub idle_timeout: u32,
}

/// Serves `app` on what `listener` accepts until `stop`, then waits for the requests that are
/// under way. Requests carry the [`ConnectInfo`] of their client's address.
pub(crate) async fn serve(
    mut listener: TcpListener,
    app: Router,
    settings: Connections,
    stop: &CancellationToken,
) {
    let mut http = http1::Builder::new();
    // It runs from the end of an answer too, so it also ends connections that are kept and not used.
    http.timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(settings.idle_timeout.into()));
    let places = Arc::new(Semaphore::new(places(settings.max_connections)));
    let open = GracefulShutdown::new();
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            // Waits a second where the system has no file left, as `axum::serve` does.
            let (stream, address) = Listener::accept(&mut listener).await;
            (place.expect("never closed"), stream, address)
        };
        let (place, stream, address) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        let connection = http.serve_connection(io_of(stream), of_client(app.clone(), address));
        let connection = open.watch(connection);
        tokio::spawn(async move {
            // What goes wrong on a connection is its client's: it went away, or sent no HTTP.
            if let Err(error) = connection.await {
                tracing::debug!(%address, %error, "connection closed");
            }
            drop(place);
        });
    }
    // New connections are refused from here on.
    drop(listener);
    open.shutdown().await;
}

fn io_of(stream: TcpStream) -> TokioIo<TcpStream> {
    // An event of a stream is sent when it happens. Where it fails, the connection has gone.
    let _ = stream.set_nodelay(true);
    TokioIo::new(stream)
}

/// The service of one connection.
fn of_client(
    app: Router,
    address: SocketAddr,
) -> impl hyper::service::Service<
    hyper::Request<Incoming>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send,
> {
    hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(address));
        app.clone().oneshot(request)
    })
}

/// How many connections there is room for. Raises the process's limit of open files as far as the
/// system lets it.
fn places(wanted: u32) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let room = files.map_or(u64::MAX, |files| files.saturating_sub(OTHER_FILES).max(1));
    if room < wanted.into() {
        tracing::warn!(
            max_connections = room,
            "fewer connections than --max-connections: the system allows too few open files \
             (ulimit -Hn)"
        );
    }
    usize::try_from(room.min(wanted.into())).unwrap_or(Semaphore::MAX_PERMITS)
}
