//! Jobs and their results.

use assay_api::{ErrorCode, GateResult, Job, JobId, JobRequest, JobResult, JobState, Page};
use assay_store::{Cancellation, Creation, JobFilter, NewJob};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::no_such_job;
use crate::access::Caller;
use crate::app::AppState;
use crate::comparisons::{self, Posted};
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, JobPath, JsonBody};
use crate::problems::{OfCancellation, OfJob, OfList, OfNewJob};
use crate::query::{Cursor, Limit, Query, States, Tag, Text, present};
use crate::remote::Named;
use crate::validate::resolve;
use crate::webhooks::{self, Target};

/// Post a job
///
/// Checks the request, the paths, the headers of the checkpoint and its tokenizer, stores the job
/// and answers at once; workers take it up from there. With an `Idempotency-Key` the same request
/// can be sent again after a broken connection and makes no second job.
#[utoipa::path(
    post,
    path = "/jobs",
    operation_id = "create_job",
    tag = "jobs",
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "1 to 255 printable ASCII characters, such as a UUID. The same key with the \
            same body (compared as parsed JSON) answers the same job; with another body `E0005`.",
    )),
    request_body(
        content = JobRequest,
        description = "A model, datasets, a method or several. At most 4 MiB, 1 MB of documents \
            among them; unknown fields are refused.\n\n\
            `method.convention` says how text becomes numbers. `rolling`: each document alone with \
            one prefix token, every token scored once; the rolling log-likelihood of \
            lm-evaluation-harness, and the only one for `chat` and `pairs` and with word and byte \
            measures. `blocks`: all documents joined (`join`), disjoint blocks of `window` tokens, \
            the first of each not scored; `tail` says what becomes of the shorter block at the \
            end. `strided`: joined, windows every `stride` tokens, each token scored once, with \
            the context that the first window with it has. `llamacpp`: joined, blocks of which \
            the second half is scored, as `llama-perplexity` does. `bos` says whether a BOS stands \
            in front of joined text. A job has at most 8 methods, 100 datasets and 400 rows, one \
            for each dataset under each method.",
        examples(
            ("rolling" = (
                summary = "Files below the data root, document by document",
                value = json!({
                    "name": "nightly",
                    "model": "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "datasets": [
                        "moby-dick.txt",
                        {
                            "name": "questions",
                            "path": "questions.jsonl",
                            "field": "prompt",
                            "group_by": "subject",
                            "sample": { "documents": 1000, "seed": 1 }
                        },
                        { "name": "web", "path": "web/**/*.jsonl.gz", "limit_tokens": 1_000_000 }
                    ],
                    "method": { "convention": "rolling", "window": 2048 },
                    "dtype": "auto",
                    "tags": { "team": "pretraining" }
                }),
            )),
            ("methods" = (
                summary = "One text under several methods",
                value = json!({
                    "model": "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "datasets": ["moby-dick.txt"],
                    "method": [
                        { "convention": "rolling" },
                        { "convention": "blocks", "window": 2048, "tail": "score" },
                        { "convention": "strided", "window": 2048, "stride": 512 },
                        { "convention": "llamacpp", "window": 512, "bos": "auto" }
                    ]
                }),
            )),
            ("chat" = (
                summary = "Chats and prompts: only the answers count",
                value = json!({
                    "model": "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "datasets": [
                        { "name": "chats", "path": "chats.jsonl", "format": "chat" },
                        {
                            "name": "answers",
                            "upload": "answers.parquet",
                            "format": "pairs",
                            "prompt_field": "question",
                            "response_field": "answer"
                        }
                    ]
                }),
            )),
            ("inline" = (
                summary = "Documents in the request, with the NLL of each token",
                value = json!({
                    "model": "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "datasets": [{
                        "name": "sentences",
                        "documents": ["Call me Ishmael.", { "text": "It was a bright day." }]
                    }],
                    "token_output": true
                }),
            )),
        ),
    ),
    responses(
        (status = 201, description = "A new job.", body = Job, headers(
            ("Location" = String, description = "Path of the job."),
        )),
        (status = 200, description = "The job that this key and body made before.", body = Job,
            headers(("Location" = String, description = "Path of the job."))),
        OfNewJob,
    ),
)]
pub(crate) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    IdempotencyKey(key): IdempotencyKey,
    body: JsonBody<JobRequest>,
) -> Result<Response, ApiError> {
    let JsonBody {
        typed: mut request,
        mut value,
    } = body;
    webhooks::conceal(&mut value);
    // Before the files are looked at: they may have changed since the key made its job.
    if let Some(key) = &key
        && let Some(made) = caller.ledger.job_of_key(key, &value).await?
    {
        return answer(made);
    }
    let grounds = state
        .grounds(
            &caller.ledger,
            Named {
                model: Some(&mut request.model),
                datasets: &mut request.datasets,
                reads_datasets: false,
            },
        )
        .await?;
    let (request, resolved) = tokio::task::spawn_blocking(move || {
        resolve(&grounds, &request).map(|resolved| (request, resolved))
    })
    .await??;
    let gate = match &request.gate {
        None => None,
        Some(gate) => {
            let posted = Posted {
                datasets: &resolved.datasets,
                methods: resolved.methods.as_slice(),
                dtype: resolved.dtype,
            };
            Some(comparisons::resolve(&caller.ledger, gate, &posted).await?)
        }
    };
    let webhook = request.webhook.as_ref().map(Target::of).transpose()?;
    let mut creation = caller
        .ledger
        .create_job(&NewJob {
            id: Uuid::now_v7(),
            request: &request,
            body: &value,
            idempotency_key: key.as_deref(),
            methods: &resolved.methods,
            datasets: &resolved.datasets,
            dtype: resolved.dtype,
            gate: gate.as_ref(),
            webhook: webhook.as_ref().map(Target::stored),
        })
        .await?;
    // No later answer shows it.
    if let Creation::Created(job) = &mut creation
        && let (Some(told), Some(target)) = (&mut job.webhook, webhook)
    {
        told.secret = target.made;
    }
    answer(creation)
}

fn answer(creation: Creation) -> Result<Response, ApiError> {
    let (status, job) = match creation {
        Creation::Created(job) => (StatusCode::CREATED, job),
        Creation::Existing(job) => (StatusCode::OK, job),
        Creation::Conflict(id) => {
            return Err(ApiError::new(
                ErrorCode::IdempotencyConflict,
                format!("this Idempotency-Key made job {id} from another body; use a new key"),
            ));
        }
        Creation::Exceeded(exceeded) => {
            let detail = exceeded.to_string();
            return Err(match exceeded.frees_at {
                None => ApiError::new(ErrorCode::QuotaExceeded, detail),
                Some(at) => {
                    let wait = (at - Utc::now()).to_std().unwrap_or_default();
                    ApiError::later(ErrorCode::QuotaExceeded, detail, wait)
                }
            });
        }
        Creation::UploadChanged(name) => {
            return Err(ApiError::of_field(
                ErrorCode::DatasetUnreadable,
                "datasets",
                format!("the upload {name:?} was deleted or replaced meanwhile; post it again"),
            ));
        }
    };
    Ok((status, [(LOCATION, format!("/jobs/{}", job.id))], Json(job)).into_response())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobsQuery {
    /// Only jobs in this state, or in one of several, as `queued,running`.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<Vec<JobState>>, style = Form, explode = false)]
    state: Option<States>,
    /// Only jobs with this text in their name, model, adapter, id or in a tag, as `key:value`; in
    /// upper or lower case.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>, max_length = 200, example = "smollm2")]
    q: Option<Text>,
    /// Only jobs with this tag, as `key:value`.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>, example = "team:pretraining")]
    tag: Option<Tag>,
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<JobId>>,
    /// Jobs of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

/// List jobs
///
/// Newest first.
#[utoipa::path(
    get,
    path = "/jobs",
    operation_id = "list_jobs",
    tag = "jobs",
    params(JobsQuery),
    responses((status = 200, description = "A page of jobs.", body = Page<Job>), OfList),
)]
pub(crate) async fn list(
    caller: Caller,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Page<Job>>, ApiError> {
    let filter = JobFilter {
        states: query.state.map(|states| states.0).unwrap_or_default(),
        text: query.q.map(|text| text.0),
        tag: query.tag.map(|tag| (tag.0, tag.1)),
    };
    let before = query.cursor.map(|cursor| cursor.0);
    let jobs = caller
        .ledger
        .jobs(&filter, before, query.limit.rows())
        .await?;
    Ok(Json(query.limit.page(jobs, |job| job.id)))
}

/// Get a job
///
/// Its state and progress. `error` says why it failed, if it did.
#[utoipa::path(
    get,
    path = "/jobs/{id}",
    operation_id = "get_job",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses((status = 200, description = "The job.", body = Job), OfJob),
)]
pub(crate) async fn get(caller: Caller, JobPath(id): JobPath) -> Result<Json<Job>, ApiError> {
    caller
        .ledger
        .job(id)
        .await?
        .map(Json)
        .ok_or_else(|| no_such_job(id))
}

/// Cancel a job
///
/// Workers stop its running shards within seconds. Cancelling a cancelled job changes nothing;
/// one that ended otherwise is refused with `E0011`.
#[utoipa::path(
    delete,
    path = "/jobs/{id}",
    operation_id = "cancel_job",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses((status = 200, description = "The cancelled job.", body = Job), OfCancellation),
)]
pub(crate) async fn cancel(caller: Caller, JobPath(id): JobPath) -> Result<Json<Job>, ApiError> {
    match caller.ledger.cancel_job(id).await? {
        Cancellation::NotFound => Err(no_such_job(id)),
        Cancellation::Cancelled(job) => Ok(Json(job)),
        Cancellation::AlreadyEnded(job) if job.state == JobState::Cancelled => Ok(Json(job)),
        Cancellation::AlreadyEnded(job) => Err(ApiError::new(
            ErrorCode::JobEnded,
            format!(
                "job {id} has {} already; there is nothing to cancel",
                job.state.as_str()
            ),
        )),
    }
}

/// Get what the gate of a job says
///
/// `verdict` is null until the job and its baseline have ended. If one of them ended without success,
/// or they turn out not to be comparable, it is `inconclusive`; `reason` says why.
#[utoipa::path(
    get,
    path = "/jobs/{id}/gate",
    operation_id = "get_gate",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses((status = 200, description = "What the gate says.", body = GateResult), OfJob),
)]
pub(crate) async fn gate(
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Json<GateResult>, ApiError> {
    let job = caller
        .ledger
        .job(id)
        .await?
        .ok_or_else(|| no_such_job(id))?;
    comparisons::decide(&caller.ledger, job).await.map(Json)
}

/// Get the results of a job
///
/// Also before the end: then `complete` is false and what is not known yet is null.
#[utoipa::path(
    get,
    path = "/jobs/{id}/results",
    operation_id = "get_results",
    tag = "jobs",
    params(("id" = Uuid, Path, description = "Id of the job.")),
    responses((status = 200, description = "The results so far.", body = JobResult), OfJob),
)]
pub(crate) async fn results(
    caller: Caller,
    JobPath(id): JobPath,
) -> Result<Json<JobResult>, ApiError> {
    caller
        .ledger
        .result(id)
        .await?
        .map(Json)
        .ok_or_else(|| no_such_job(id))
}
