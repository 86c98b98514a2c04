//! The one router: what it serves is what the OpenAPI document says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use assay_api::{DatasetRef, FieldError, Problem, Upload};
use assay_checkpoint::{DigestCache, Tokenizers};
use assay_data::Root;
use assay_hub::Hub;
use assay_store::{Store, StoreError};
use axum::Router;
use axum::body::Bytes;
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::edge;
use crate::metrics::Metrics;
use crate::remote::{self, Named};
use crate::routes::{
    archive, comparisons, datasets, deliveries, documents, events, health, jobs, manual, metrics,
    models, plans, shards, tokens, workers,
};
use crate::uploads::Files;
use crate::validate::{Grounds, MAX_DATASETS};
use crate::webhooks::Receivers;
use crate::work::Heavy;

/// What handlers share.
#[derive(Clone)]
pub(crate) struct AppState {
    /// The ledger.
    pub(crate) store: Store,
    /// Where checkpoints are.
    pub(crate) models: Root,
    /// Where datasets are.
    pub(crate) data: Root,
    /// The hub that references are of, if one is used.
    pub(crate) hub: Option<Arc<Hub>>,
    /// Uploaded datasets.
    pub(crate) files: Files,
    /// Bytes of an upload.
    pub(crate) upload_limit: u64,
    /// Where webhooks may be.
    pub(crate) receivers: Receivers,
    /// Digests of files, remembered.
    pub(crate) digests: DigestCache,
    /// Tokenizers that are built already.
    pub(crate) tokenizers: Tokenizers,
    /// Where files are made that are sent and forgotten.
    pub(crate) scratch: PathBuf,
    /// Runs what takes long.
    pub(crate) heavy: Heavy,
    /// What is told to those who watch the service.
    pub(crate) metrics: Metrics,
    /// The OpenAPI document.
    pub(crate) openapi: Bytes,
    /// Cancelled when the server shuts down. Answers without an end wait for it.
    pub(crate) stop: CancellationToken,
}

impl AppState {
    /// The uploads that datasets of a request name, as far as there are such.
    ///
    /// # Errors
    /// The ledger fails.
    async fn uploaded(
        &self,
        datasets: &[DatasetRef],
    ) -> Result<HashMap<String, Upload>, StoreError> {
        let mut found = HashMap::new();
        // With more of them the request is refused, whatever they are.
        for name in datasets
            .iter()
            .take(MAX_DATASETS)
            .filter_map(|d| d.upload.as_ref())
        {
            if !found.contains_key(name)
                && let Some(upload) = self.store.upload(name).await?
            {
                found.insert(name.clone(), upload);
            }
        }
        Ok(found)
    }

    /// Where what a request names is looked for. References to the hub in it are pinned
    /// to their commits.
    ///
    /// # Errors
    /// The ledger fails. What is wrong with references is told where they are checked.
    pub(crate) async fn grounds(&self, named: Named<'_>) -> Result<Grounds, StoreError> {
        Ok(Grounds {
            models: self.models.clone(),
            data: self.data.clone(),
            uploads: self.files.uploads().clone(),
            uploaded: self.uploaded(named.datasets).await?,
            tokenizers: self.tokenizers.clone(),
            remote: remote::resolve(self.hub.as_ref(), named).await,
            receivers: self.receivers.clone(),
        })
    }
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
        (name = "datasets", description = "Upload datasets, look into them."),
        (name = "models", description = "Look into checkpoints."),
        (name = "service", description = "Workers, health and documentation."),
    ),
)]
struct Document;

fn routes() -> OpenApiRouter<AppState> {
    let prompt = OpenApiRouter::new()
        .routes(routes!(jobs::create, jobs::list))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(jobs::results))
        .routes(routes!(events::follow))
        .routes(routes!(documents::list))
        .routes(routes!(tokens::list))
        .routes(routes!(shards::list))
        .routes(routes!(deliveries::list))
        .routes(routes!(deliveries::retry))
        .routes(routes!(datasets::list))
        .routes(routes!(datasets::get, datasets::delete))
        .routes(routes!(models::inspect))
        .routes(routes!(workers::list))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::scrape))
        .routes(routes!(manual::openapi))
        .routes(routes!(manual::errors))
        .layer(edge::within(edge::TIMEOUT));
    let long = OpenApiRouter::new()
        .routes(routes!(archive::get))
        .routes(routes!(datasets::inspect))
        .routes(routes!(plans::compare))
        .routes(routes!(comparisons::compare))
        .routes(routes!(jobs::gate))
        .layer(edge::within(edge::LONG_TIMEOUT));
    // An upload takes as long as its bytes do. The handler bounds the silence between them.
    let uploads = OpenApiRouter::new().routes(routes!(datasets::put));
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(prompt)
        .merge(long)
        .merge(uploads)
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
pub(crate) fn app(state: AppState) -> Router {
    // `none` keeps the page from asking an outside service to validate the document.
    let ui = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    let requests = state.metrics.requests.clone();
    edge::surround(Router::from(routes()).with_state(state).merge(ui), requests)
}
