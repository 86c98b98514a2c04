//! What surrounds every request: its id, one line in the log, its time in the metrics, and errors as
//! problem+json.

use std::any::Any;
use std::time::{Duration, Instant};

use assay_api::{ErrorCode, Problem};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;
use tracing::Instrument;
use uuid::Uuid;

use crate::error::{ApiError, Failure};
use crate::metrics::{Requests, UNMATCHED};

/// Largest JSON body of a request, in bytes. Documents in it take 1 MB at most.
pub(crate) const BODY_LIMIT: usize = 4 << 20;

/// Largest body that is read, in bytes, be it to refuse it: a connection that is closed with
/// unread data is reset, and its client may lose the answer.
const READ_LIMIT: usize = 4 * BODY_LIMIT;

/// Longest time that most requests may take.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Longest time of requests that read a whole dataset or a whole job.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_mins(10);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The media type of errors (RFC 9457).
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Bounds the time of requests.
pub(crate) fn within(timeout: Duration) -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, timeout)
}

/// Puts the edge around all routes of `router`, its 404s and 405s included.
pub(crate) fn surround(router: Router, requests: Requests) -> Router {
    router
        .layer(DefaultBodyLimit::max(READ_LIMIT))
        .layer(CatchPanicLayer::custom(answer_panic))
        .layer(from_fn_with_state(requests, edge))
}

/// The id of a request, for its handler.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) String);

async fn edge(State(requests): State<Requests>, mut request: Request, next: Next) -> Response {
    let _in_flight = requests.begin();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    // The template and not the path: ids would make every line of a log or metric its own kind.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| UNMATCHED.to_owned(), |route| route.as_str().to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!(
        "request", request_id = %id, %method, route, key = tracing::field::Empty
    );
    let started = Instant::now();
    async move {
        let mut response = shape(next.run(request).await, &id, &method, &path);
        let header = HeaderValue::from_str(&id).expect("request ids are visible ASCII");
        response.headers_mut().insert(REQUEST_ID, header);
        secure(response.headers_mut(), &path);
        let status = response.status().as_u16();
        let took = started.elapsed();
        let latency_ms = took.as_micros() as f64 / 1e3;
        // Probes come every few seconds and say nothing while all is well.
        if matches!(route.as_str(), "/healthz" | "/readyz" | "/metrics") {
            tracing::debug!(status, latency_ms, "answered");
        } else {
            tracing::info!(status, latency_ms, "answered");
        }
        requests.answered(&method, route, response.status(), took);
        response
    }
    .instrument(span)
    .await
}

/// What browsers are to do with an answer: take its type as it is, run nothing in it that is not of
/// this service, show it in no frame of others, and tell no others where they were. A handler may
/// have said something stricter.
fn secure(headers: &mut HeaderMap, path: &str) {
    let policy = if path == "/docs" || path.starts_with("/docs/") {
        // Swagger UI has styles and pictures in its page.
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
         frame-ancestors 'none'"
    } else {
        "default-src 'self'; frame-ancestors 'none'"
    };
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}

/// The caller's `x-request-id` if it is 1 to 128 visible ASCII characters, else a new id.
fn request_id(headers: &HeaderMap) -> String {
    headers
        .get(REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(|id| (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic()))
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// Logs the cause of a failure and writes its problem as the body. Errors that come from axum
/// and its layers, which know nothing of problems, get one by their status.
fn shape(mut response: Response, id: &str, method: &Method, path: &str) -> Response {
    let failure = response.extensions_mut().remove::<Failure>();
    let mut problem = match failure {
        Some(Failure { problem, cause }) => {
            if let Some(cause) = cause {
                tracing::error!(code = problem.code.as_str(), cause, "request failed");
            }
            problem
        }
        None if is_bare_error(&response) => problem_of(response.status(), method, path),
        None => return response,
    };
    problem.request_id = Some(id.to_owned());
    let body = serde_json::to_vec(&problem).expect("a problem is plain data");
    // The other headers stay: `Allow` of a 405 for one.
    response.headers_mut().remove(CONTENT_LENGTH);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    *response.body_mut() = Body::from(body);
    response
}

/// An error whose body is not a document of its own, such as `/readyz` sends with 503.
fn is_bare_error(response: &Response) -> bool {
    let status = response.status();
    (status.is_client_error() || status.is_server_error())
        && response
            .headers()
            .get(CONTENT_TYPE)
            .is_none_or(|kind| kind != "application/json")
}

fn problem_of(status: StatusCode, method: &Method, path: &str) -> Problem {
    let (code, detail) = match status {
        StatusCode::NOT_FOUND => (
            ErrorCode::NotFound,
            format!("there is nothing at {path}; /docs lists every path of this service"),
        ),
        StatusCode::METHOD_NOT_ALLOWED => (
            ErrorCode::MethodNotAllowed,
            format!("{path} does not take {method}; the header Allow lists what it takes"),
        ),
        StatusCode::GATEWAY_TIMEOUT => (
            ErrorCode::Timeout,
            "the answer took too long; send the same request again, a POST with the same \
             Idempotency-Key"
                .to_owned(),
        ),
        status if status.is_client_error() => (
            ErrorCode::InvalidRequest,
            format!("{method} {path} was refused: {status}"),
        ),
        status => (
            ErrorCode::Internal,
            format!("{method} {path} failed: {status}"),
        ),
    };
    Problem {
        status: status.as_u16(),
        ..Problem::new(code, detail)
    }
}

fn answer_panic(panic: Box<dyn Any + Send + 'static>) -> Response {
    let message = panic
        .downcast::<String>()
        .map(|text| *text)
        .or_else(|panic| panic.downcast::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|_| "(no message)".to_owned());
    ApiError::Panic(message).into_response()
}

#[cfg(test)]
mod tests;
