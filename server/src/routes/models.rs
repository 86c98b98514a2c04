//! What can be said of a checkpoint without scoring anything.

use assay_api::{ModelInspection, ModelRef};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::app::AppState;
use crate::error::ApiError;
use crate::faults::Faults;
use crate::problems::OfModel;
use crate::query::Query;
use crate::remote::Named;
use crate::validate::open;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ModelQuery {
    /// Path of the checkpoint below the model root; where the service uses a hub, also a reference
    /// to it, `hf://org/name@revision`.
    #[param(example = "SmolLM2-135M-Instruct.Q4_1.gguf")]
    path: String,
    /// Path of a LoRA adapter below the model root, to be added to it; or a reference.
    adapter: Option<String>,
}

/// Inspect a checkpoint
///
/// Its architecture, parameters, memory and tokenizer, from the headers of its files; nothing of
/// the weights is read. A checkpoint that this takes, `POST /jobs` takes too. Of a reference to a
/// hub only the small files are fetched, and the answer follows from them.
#[utoipa::path(
    get,
    path = "/models/inspect",
    operation_id = "inspect_model",
    tag = "models",
    params(ModelQuery),
    responses((status = 200, description = "What it is.", body = ModelInspection), OfModel),
)]
pub(crate) async fn inspect(
    State(state): State<AppState>,
    caller: Caller,
    Query(ModelQuery { path, adapter }): Query<ModelQuery>,
) -> Result<Json<ModelInspection>, ApiError> {
    let mut model = ModelRef { path, adapter };
    let grounds = state
        .grounds(
            &caller.ledger,
            Named {
                model: Some(&mut model),
                ..Named::default()
            },
        )
        .await?;
    tokio::task::spawn_blocking(move || {
        let mut faults = Faults::default();
        let opened = open(&grounds, &model, ("path", "adapter"), &mut faults);
        faults.into_result()?;
        let opened = opened.expect("a checkpoint that does not open is a fault");
        opened
            .model
            .inspect(&model, &grounds.remote)
            .map(Json)
            .map_err(|error| ApiError::of_field(error.code(), "path", error.to_string()))
    })
    .await?
}
