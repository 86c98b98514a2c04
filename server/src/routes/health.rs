//! Probes.

use std::time::Duration;

use assay_api::{Health, Readiness};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use crate::app::AppState;

/// A database that takes longer does not count as ready. Short of the usual patience of probes.
const PATIENCE: Duration = Duration::from_millis(900);

/// Whether the process answers
///
/// Says nothing about the database; restart the process when this fails.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "service",
    responses((status = 200, description = "It does.", body = Health)),
)]
pub(crate) async fn alive() -> Json<Health> {
    Json(Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Whether requests can be served
///
/// The database answers and its schema is the one of this program. Send no traffic while it is
/// not; jobs are taken without a live worker too, and wait for one.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "service",
    responses(
        (status = 200, description = "They can.", body = Readiness),
        (status = 503, description = "They cannot.", body = Readiness),
    ),
)]
pub(crate) async fn ready(State(state): State<AppState>) -> (StatusCode, Json<Readiness>) {
    let ask = async {
        state.commons.ready().await?;
        state.commons.live_workers().await
    };
    let (status, name, workers) = match tokio::time::timeout(PATIENCE, ask).await {
        Ok(Ok(workers)) => (StatusCode::OK, "ready", Some(workers)),
        Ok(Err(error)) => {
            tracing::warn!(%error, "not ready");
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable", None)
        }
        Err(_) => {
            tracing::warn!("not ready: the database did not answer within {PATIENCE:?}");
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable", None)
        }
    };
    let readiness = Readiness {
        status: name.to_owned(),
        database: workers.is_some(),
        workers: workers.unwrap_or(0),
    };
    (status, Json(readiness))
}
