//! The error answers of operations, for the OpenAPI document.

use std::collections::BTreeMap;

use assay_api::{ErrorCode, Problem};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::edge::PROBLEM_JSON;

macro_rules! problem_sets {
    ($($(#[doc = $doc:literal])+ $name:ident: [$($code:ident),*];)+) => {
        $(
            $(#[doc = $doc])+
            pub(crate) enum $name {}

            impl IntoResponses for $name {
                fn responses() -> BTreeMap<String, RefOr<Response>> {
                    responses(&[$(ErrorCode::$code),*])
                }
            }
        )+
    };
}

/// Whatever is asked of the ledger can end so.
const OF_EVERY_OPERATION: [ErrorCode; 3] = [
    ErrorCode::Internal,
    ErrorCode::Unavailable,
    ErrorCode::Timeout,
];

problem_sets! {
    /// Of `POST /jobs`.
    OfNewJob: [
        MalformedJson, IdempotencyConflict, PayloadTooLarge, UnsupportedMediaType, InvalidRequest,
        PathOutsideRoot, DatasetUnreadable, DatasetInvalid, MethodInvalid, NoPrefixToken,
        HubDisabled, StorageFull, QuotaExceeded, TooManyRequests,
        CheckpointUnreadable, ArchitectureUnsupported, TensorMismatch, PickleRefused,
        TokenizerUnusable, DtypeUnsupported, ChatTemplateUnusable
    ];
    /// Of the cancellation of a job.
    OfCancellation: [NotFound, JobEnded];
    /// Of operations on one job.
    OfJob: [NotFound];
    /// Of `POST /comparisons`.
    OfComparison: [
        MalformedJson, PayloadTooLarge, UnsupportedMediaType, InvalidRequest, NotFound, JobNotEnded,
        NotComparable
    ];
    /// Of the events of a job.
    OfEvents: [NotFound, InvalidRequest];
    /// Of `POST /keys`.
    OfNewKey: [MalformedJson, PayloadTooLarge, UnsupportedMediaType, InvalidRequest];
    /// Of operations on one key.
    OfKey: [NotFound];
    /// Of lists.
    OfList: [InvalidRequest];
    /// Of `GET /models`.
    OfModels: [InvalidRequest, PathOutsideRoot, CheckpointUnreadable];
    /// Of `GET /files`.
    OfFiles: [InvalidRequest, PathOutsideRoot, DatasetUnreadable];
    /// Of lists that belong to one job.
    OfJobList: [NotFound, InvalidRequest];
    /// Of the archive of a job.
    OfArchive: [NotFound, JobNotEnded, StorageFull];
    /// Of the report of a job.
    OfReport: [NotFound, JobNotEnded];
    /// Of `PUT /datasets/{name}`.
    OfUpload: [PayloadTooLarge, UnsupportedMediaType, InvalidRequest, StorageFull];
    /// Of operations on one upload.
    OfUploadName: [NotFound];
    /// Of `POST /datasets/inspect`.
    OfInspection: [
        MalformedJson, PayloadTooLarge, UnsupportedMediaType, InvalidRequest, PathOutsideRoot,
        DatasetUnreadable, DatasetInvalid, DatasetEmpty, ChatRefused, HubDisabled, StorageFull, CheckpointUnreadable,
        ArchitectureUnsupported, TensorMismatch, PickleRefused, TokenizerUnusable,
        DtypeUnsupported, ChatTemplateUnusable, OutOfMemory
    ];
    /// Of `POST /plans`.
    OfPlan: [
        MalformedJson, PayloadTooLarge, UnsupportedMediaType, InvalidRequest, PathOutsideRoot,
        DatasetUnreadable, DatasetInvalid, DatasetEmpty, MethodInvalid, NoPrefixToken, ChatRefused,
        HubDisabled,
        CheckpointUnreadable, ArchitectureUnsupported, TensorMismatch, PickleRefused,
        TokenizerUnusable, DtypeUnsupported, ChatTemplateUnusable, OutOfMemory, StorageFull
    ];
    /// Of `GET /models/inspect`.
    OfModel: [
        InvalidRequest, PathOutsideRoot, HubDisabled, CheckpointUnreadable,
        ArchitectureUnsupported, StorageFull, TensorMismatch, PickleRefused, TokenizerUnusable, DtypeUnsupported, ChatTemplateUnusable
    ];
}

/// What every operation that takes a key can answer.
pub(crate) fn of_access() -> BTreeMap<String, RefOr<Response>> {
    by_status(&[
        ErrorCode::Unauthenticated,
        ErrorCode::Forbidden,
        ErrorCode::TooManyRequests,
    ])
}

/// One response per status of an operation, which lists its codes and shows a problem of the first.
fn responses(codes: &[ErrorCode]) -> BTreeMap<String, RefOr<Response>> {
    by_status(&[codes, &OF_EVERY_OPERATION[..]].concat())
}

fn by_status(codes: &[ErrorCode]) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status = BTreeMap::<u16, Vec<ErrorCode>>::new();
    for code in codes {
        by_status.entry(code.http_status()).or_default().push(*code);
    }
    by_status
        .into_iter()
        .map(|(status, codes)| (status.to_string(), response(&codes).into()))
        .collect()
}

fn response(codes: &[ErrorCode]) -> Response {
    let list: Vec<String> = codes
        .iter()
        .map(|code| format!("`{code}` {}", code.title()))
        .collect();
    let mut example = Problem::new(codes[0], "What happened here and what to do about it.");
    example.request_id = Some("01932c07-209c-7f3c-a4ac-6f2b5f9f0a51".to_owned());
    let example = serde_json::to_value(example).expect("a problem is plain data");
    ResponseBuilder::new()
        .description(list.join("; "))
        .content(
            PROBLEM_JSON,
            Content::builder()
                .schema(Some(Ref::from_schema_name(Problem::name())))
                .example(Some(example))
                .build(),
        )
        .build()
}
