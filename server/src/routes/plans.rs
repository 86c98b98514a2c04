//! How a job would be spread over devices.

use assay_api::{PlanComparison, PlanRequest};
use axum::Json;
use axum::extract::State;

use crate::access::Caller;
use crate::app::AppState;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::plans;
use crate::problems::OfPlan;
use crate::remote::Named;
use crate::validate::resolve_plan;

/// Compare plans of a job
///
/// Reads and tokenizes the datasets as the job would, plans it, and predicts how long devices of
/// the given speeds would take by each of several strategies. Nothing is scored and no job is
/// stored. The predictions count the computing, under `dynamic` also what claims and commits take;
/// not that devices load a model. Takes as long as reading and tokenizing do, 10 minutes at most;
/// a `sample` or a limit shortens it.
#[utoipa::path(
    post,
    path = "/plans",
    operation_id = "compare_plans",
    tag = "jobs",
    request_body(
        content = PlanRequest,
        description = "A job as `POST /jobs` takes it, and at most 4096 devices in all. How the \
            job is to be run (`priority`, `audit`, `baseline`, `reuse`, `numerics`, `gate`) changes nothing \
            here.",
        example = json!({
            "job": {
                "model": "SmolLM2-135M-Instruct.Q4_1.gguf",
                "datasets": [{ "path": "questions.jsonl", "field": "prompt" }],
                "method": { "convention": "rolling", "window": 2048 }
            },
            "devices": [
                { "name": "old", "tokens_per_second": 400, "count": 2 },
                { "name": "new", "tokens_per_second": 1200 }
            ],
            "seed": 1
        }),
    ),
    responses(
        (status = 200, description = "What each strategy would come to.", body = PlanComparison),
        OfPlan,
    ),
)]
pub(crate) async fn compare(
    State(state): State<AppState>,
    caller: Caller,
    JsonBody {
        typed: mut request, ..
    }: JsonBody<PlanRequest>,
) -> Result<Json<PlanComparison>, ApiError> {
    let grounds = state
        .grounds(
            &caller.ledger,
            Named {
                model: Some(&mut request.job.model),
                datasets: &mut request.job.datasets,
                reads_datasets: true,
            },
        )
        .await?;
    let (digests, scratch) = (state.digests.clone(), state.scratch.clone());
    let compared = state
        .heavy
        .run(move |cancelled| {
            let job = resolve_plan(&grounds, &request)?;
            let host = plans::Host {
                data: &grounds.data,
                fetched: &grounds.remote.fetched,
                uploads: &grounds.uploads,
                digests: &digests,
                scratch: &scratch,
                cancelled,
            };
            plans::compare(&job, &request, &host)
        })
        .await?;
    Ok(Json(compared))
}
