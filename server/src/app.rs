//! The one router: what it serves is what the OpenAPI document says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use assay_api::{DatasetRef, FieldError, Problem, Upload};
use assay_checkpoint::{DigestCache, Tokenizers};
use assay_data::Root;
use assay_hub::Hub;
use assay_store::{ProjectStore, StoreError};
use axum::body::Bytes;
use axum::{Extension, Router};
use tokio_util::sync::CancellationToken;
use utoipa::OpenApi;
use utoipa_axum::routes;
use utoipa_swagger_ui::{Config, SwaggerUi};

use crate::access::{ADMIN, Access, Commons, Gate, Operations, READ, SUBMIT};
use crate::edge;
use crate::metrics::Metrics;
use crate::partials::Partials;
use crate::remote::{self, Named};
use crate::routes::{
    archive, audit, comparisons, datasets, deliveries, documents, events, files, health, jobs,
    keys, manual, metrics, models, partial, plans, report, shards, tokens, workers,
};
use crate::ui;
use crate::uploads::Files;
use crate::validate::{Grounds, MAX_DATASETS};
use crate::webhooks::Receivers;
use crate::work::Heavy;

/// What handlers share. The ledger is not among it: what is asked of it in the name of a project is
/// asked through [`crate::access::Caller`].
#[derive(Clone)]
pub(crate) struct AppState {
    /// What belongs to no project.
    pub(crate) commons: Commons,
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
    /// The numbers of jobs so far.
    pub(crate) partials: Partials,
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
        ledger: &ProjectStore,
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
                && let Some(upload) = ledger.upload(name).await?
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
    pub(crate) async fn grounds(
        &self,
        ledger: &ProjectStore,
        named: Named<'_>,
    ) -> Result<Grounds, StoreError> {
        Ok(Grounds {
            models: self.models.clone(),
            data: self.data.clone(),
            uploads: self.files.uploads().clone(),
            uploaded: Self::uploaded(ledger, named.datasets).await?,
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
            `GET /errors` explains each. What belongs to another project than that of the key is not \
            found. Lists are `{\"items\": [..], \"next\": cursor}`; give \
            `next` as `cursor` until it is null. Times are RFC 3339 in UTC.",
        contact(),
    ),
    components(schemas(Problem, FieldError)),
    tags(
        (name = "jobs", description = "Post models and datasets, follow them, read the numbers."),
        (name = "datasets", description = "Upload datasets, look into them."),
        (name = "models", description = "Look into checkpoints."),
        (name = "keys", description = "Keys of a project, and who wrote what in it."),
        (name = "service", description = "Workers, health and documentation."),
    ),
)]
struct Document;

/// Every operation, with what it takes. Reading changes nothing, whatever it computes.
fn operations() -> Operations {
    let prompt = Operations::new()
        .with(SUBMIT, routes!(jobs::create))
        .with(READ, routes!(jobs::list))
        .with(READ, routes!(jobs::get))
        .with(SUBMIT, routes!(jobs::cancel))
        .with(READ, routes!(jobs::results))
        .with(READ, routes!(partial::get))
        .with(READ, routes!(events::follow))
        .with(READ, routes!(documents::list))
        .with(READ, routes!(tokens::list))
        .with(READ, routes!(shards::list))
        .with(READ, routes!(deliveries::list))
        .with(SUBMIT, routes!(deliveries::retry))
        .with(READ, routes!(datasets::list))
        .with(READ, routes!(datasets::get))
        .with(SUBMIT, routes!(datasets::delete))
        .with(READ, routes!(models::inspect))
        .with(READ, routes!(files::models))
        .with(READ, routes!(files::datasets))
        .with(READ, routes!(workers::list))
        .with(READ, routes!(metrics::scrape))
        .with(ADMIN, routes!(keys::create, keys::list))
        .with(ADMIN, routes!(keys::revoke))
        .with(ADMIN, routes!(audit::list))
        .with(Access::Open, routes!(health::alive))
        .with(Access::Open, routes!(health::ready))
        .with(Access::Open, routes!(manual::openapi))
        .with(Access::Open, routes!(manual::errors))
        .layer(edge::within(edge::TIMEOUT));
    let long = Operations::new()
        .with(READ, routes!(archive::get))
        .with(READ, routes!(report::get))
        .with(READ, routes!(datasets::inspect))
        .with(READ, routes!(plans::compare))
        .with(READ, routes!(comparisons::compare))
        .with(READ, routes!(jobs::gate))
        .layer(edge::within(edge::LONG_TIMEOUT));
    // An upload takes as long as its bytes do. The handler bounds the silence between them.
    let uploads = Operations::new().with(SUBMIT, routes!(datasets::put));
    prompt.merge(long).merge(uploads)
}

/// The OpenAPI document, as served and as committed.
pub fn openapi_json() -> String {
    let (_, document) = operations().into_parts(Document::openapi());
    let json = document
        .to_pretty_json()
        .expect("the document is plain data");
    json + "\n"
}

/// The whole service, behind its gate.
pub(crate) fn app(state: AppState, gate: Gate) -> Router {
    // `none` keeps the page from asking an outside service to validate the document.
    let docs = SwaggerUi::new("/docs").config(Config::from("/openapi.json").validator_url("none"));
    let requests = state.metrics.requests.clone();
    let (api, _) = operations().into_parts(Document::openapi());
    let api = api.with_state(state).layer(Extension(gate));
    edge::surround(api.merge(docs).merge(ui::router()), requests)
}
