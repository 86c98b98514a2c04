//! The one router: what it serves is what the OpenAPI document says.

use assay_api::{FieldError, Problem};
use assay_data::Root;
use assay_store::Store;
use axum::Router;
use axum::body::Bytes;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::edge;
use crate::routes::{documents, health, jobs, manual, shards, workers};

/// What handlers share.
#[derive(Clone)]
pub(crate) struct AppState {
    /// The ledger.
    pub(crate) store: Store,
    /// Where checkpoints are.
    pub(crate) models: Root,
    /// Where datasets are.
    pub(crate) data: Root,
    /// The OpenAPI document.
    pub(crate) openapi: Bytes,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Assay",
        description = "Evaluation as a service for language models: a checkpoint and datasets go \
            in, exact and reproducible perplexities come out.\n\n\
            Every answer carries `x-request-id`, the caller's if it sent one; the service's log \
            has the request under it. Errors are `application/problem+json` with a `code`; \
            `GET /errors` explains each. Lists are `{\"items\": [..], \"next\": cursor}`; give \
            `next` as `cursor` until it is null. Times are RFC 3339 in UTC.",
        contact(),
    ),
    components(schemas(Problem, FieldError)),
    tags(
        (name = "jobs", description = "Post models and datasets, follow them, read the numbers."),
        (name = "service", description = "Workers, health and documentation."),
    ),
)]
struct Document;

fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(jobs::create, jobs::list))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(jobs::results))
        .routes(routes!(documents::list))
        .routes(routes!(shards::list))
        .routes(routes!(workers::list))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(manual::openapi))
        .routes(routes!(manual::errors))
}

/// The OpenAPI document, as served and as committed.
pub fn openapi_json() -> String {
    let json = routes()
        .into_openapi()
        .to_pretty_json()
        .expect("the document is plain data");
    json + "\n"
}

/// The whole service.
pub(crate) fn app(store: Store, models: Root, data: Root) -> Router {
    // `none` keeps the page from asking an outside service to validate the document.
    let ui = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    let state = AppState {
        store,
        models,
        data,
        openapi: openapi_json().into(),
    };
    edge::surround(
        Router::from(routes()).with_state(state).merge(ui),
        edge::TIMEOUT,
    )
}
