//! Comparisons of two jobs.

use assay_api::{Comparison, ComparisonRequest};
use axum::Json;

use crate::access::Caller;
use crate::comparisons;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::problems::OfComparison;

/// Compare two jobs
///
/// The paired difference of each dataset of the candidate: both jobs scored the same text, so what
/// is compared is the NLL of each document in one with that in the other, which has a far smaller
/// error than the difference of two perplexities. Refused with `E0014` if data, options, method,
/// dtype, tokenizer or `numerics_version` differ; across tokenizers, rows whose every token counts
/// are compared by byte. With `max_increase` each dataset has a verdict. Nothing is stored.
#[utoipa::path(
    post,
    path = "/comparisons",
    operation_id = "compare_jobs",
    tag = "jobs",
    request_body(
        content = ComparisonRequest,
        description = "Two jobs that have ended.",
        example = json!({
            "baseline": { "tag": "branch:main" },
            "candidate": "01932c07-209c-7f3c-a4ac-6f2b5f9f0a51",
            "max_increase": 0.01
        }),
    ),
    responses(
        (status = 200, description = "The paired differences.", body = Comparison),
        OfComparison,
    ),
)]
pub(crate) async fn compare(
    caller: Caller,
    JsonBody { typed: request, .. }: JsonBody<ComparisonRequest>,
) -> Result<Json<Comparison>, ApiError> {
    comparisons::compare(&caller.ledger, &request)
        .await
        .map(Json)
}
