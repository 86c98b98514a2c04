//! What can be said of a checkpoint without scoring anything.

use assay_api::{ModelInspection, ModelRef};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::app::AppState;
use crate::error::ApiError;
use crate::faults::Faults;
use crate::problems::OfModel;
use crate::query::Query;
use crate::validate::open;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ModelQuery {
    /// Path of the checkpoint below the model root.
    #[param(example = "SmolLM2-135M-Instruct.Q4_1.gguf")]
    path: String,
    /// Path of a LoRA adapter below the model root, to be added to it.
    adapter: Option<String>,
}

/// Inspect a checkpoint
///
/// Its architecture, parameters, memory and tokenizer, from the headers of its files; nothing of
/// the weights is read. A checkpoint that this takes, `POST /jobs` takes too.
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
    Query(ModelQuery { path, adapter }): Query<ModelQuery>,
) -> Result<Json<ModelInspection>, ApiError> {
    let models = state.models;
    tokio::task::spawn_blocking(move || {
        let mut faults = Faults::default();
        let model = ModelRef { path, adapter };
        let opened = open(&models, &model, ("path", "adapter"), &mut faults);
        faults.into_result()?;
        let checkpoint = opened
            .expect("a checkpoint that does not open is a fault")
            .checkpoint;
        assay_checkpoint::inspect(&checkpoint, &model.path)
            .map(Json)
            .map_err(|error| ApiError::of_field(error.code(), "path", error.to_string()))
    })
    .await?
}
