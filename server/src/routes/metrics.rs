//! Metrics.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::app::AppState;
use crate::metrics::Format;

/// Metrics for Prometheus
///
/// Of this server, and of the ledger that all servers share: the latter at most 5 seconds old, and
/// left out while the database does not answer. `docs/operations.md` says what each means. In the
/// text format of Prometheus, or as OpenMetrics for those who accept
/// `application/openmetrics-text`.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "service",
    responses((
        status = 200,
        description = "The text format of Prometheus.",
        content_type = "text/plain",
        body = String,
    )),
)]
pub(crate) async fn scrape(State(state): State<AppState>, headers: HeaderMap) -> impl IntoResponse {
    let format = Format::accepted(&headers);
    let text = state.metrics.scrape(format).await;
    ([(CONTENT_TYPE, format.media_type())], text)
}
