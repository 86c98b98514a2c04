//! Every error code of the service.

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $status:literal, $title:literal;)+) => {
        /// Names an error to programs. Codes never change meaning.
        ///
        /// `E0` the request or the HTTP surface, `E1` the cluster, `E2` the computation,
        /// `E3` agreement between nodes, `E4` datasets and methods, `E5` checkpoints.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $code)] $name,)+
        }

        impl ErrorCode {
            /// All codes, in the order of their numbers.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name,)+];

            /// The code as it travels, such as `E4003`.
            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$name => $code,)+ }
            }

            /// The HTTP status of a response that carries this code.
            pub const fn http_status(self) -> u16 {
                match self { $(ErrorCode::$name => $status,)+ }
            }

            /// A short sentence that is the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(ErrorCode::$name => $title,)+ }
            }
        }
    };
}

codes! {
    /// A fault of the service; the log has the cause under the request id.
    Internal = "E0001", 500, "Internal error";
    /// No such path, job, dataset or document.
    NotFound = "E0002", 404, "Not found";
    /// The body or query is not what the operation takes; `errors` names the fields.
    InvalidRequest = "E0003", 422, "Invalid request";
    /// The body is not JSON.
    MalformedJson = "E0004", 400, "Malformed JSON";
    /// The `Idempotency-Key` was used before with another body.
    IdempotencyConflict = "E0005", 409, "Idempotency key reused with another body";
    /// The body is larger than the limit.
    PayloadTooLarge = "E0006", 413, "Payload too large";
    /// The path exists, the method does not.
    MethodNotAllowed = "E0007", 405, "Method not allowed";
    /// The body is not of the kind that the operation takes.
    UnsupportedMediaType = "E0008", 415, "Unsupported media type";
    /// The database, or the hub that a reference is of, does not answer; try again.
    Unavailable = "E0009", 503, "Temporarily unavailable";
    /// The request took longer than the server allows.
    Timeout = "E0010", 504, "Request timed out";
    /// The job has ended, so the operation no longer applies.
    JobEnded = "E0011", 409, "Job has ended";
    /// The job has not ended, and the operation is for jobs that have.
    JobNotEnded = "E0012", 409, "Job has not ended";
    /// The server's disk has no room for an upload or an archive.
    StorageFull = "E0013", 507, "No room on the disk";
    /// Two jobs measured something else, or in another way; `errors` names each difference.
    NotComparable = "E0014", 409, "Jobs cannot be compared";
    /// The request has no key, or one that is not valid (any longer).
    Unauthenticated = "E0015", 401, "A valid key is needed";
    /// The key may not do this, or the service is asked under a name that is not its own.
    Forbidden = "E0016", 403, "Not allowed";
    /// The project has as much as it may; `detail` names the quota and when it frees.
    QuotaExceeded = "E0017", 429, "Quota exceeded";
    /// Requests come faster than they are taken; `Retry-After` says when the next one is.
    TooManyRequests = "E0018", 429, "Too many requests";

    /// A worker could not reach the database for longer than its lease.
    DatabaseUnreachable = "E1001", 503, "Database unreachable";
    /// A shard was lost with its worker too often.
    ShardLost = "E1002", 500, "Workers were lost too often";
    /// No worker took the job up within its `deadlines.queue_seconds`.
    QueueDeadlineExceeded = "E1003", 504, "Not taken up in time";
    /// The job ran for longer than its `deadlines.run_seconds`.
    RunDeadlineExceeded = "E1004", 504, "Not done in time";

    /// A shard failed while computing, twice.
    ComputeFailed = "E2001", 500, "Computation failed";
    /// A device or a host has too little memory even for the smallest piece.
    OutOfMemory = "E2002", 507, "Out of memory";
    /// A token's NLL is NaN or infinite.
    NonFinite = "E2003", 422, "Not a finite number";
    /// A token's NLL does not fit the exact sum (2^31 nat or more).
    NllOutOfRange = "E2004", 422, "NLL out of range";

    /// The checkpoint on the worker differs from the one that was planned.
    CheckpointDiffers = "E3001", 409, "Checkpoint differs between nodes";
    /// The dataset or its tokens on the worker differ from those planned.
    DataDiffers = "E3002", 409, "Data differs between nodes";
    /// Audits disagree and there is no majority.
    AuditDisagrees = "E3003", 409, "Audit without a majority";
    /// Counted tokens do not agree with the plan.
    CountsDisagree = "E3004", 500, "Counts disagree with the plan";

    /// The path leads outside the configured root.
    PathOutsideRoot = "E4001", 422, "Path outside the root";
    /// The dataset does not exist or cannot be read.
    DatasetUnreadable = "E4002", 422, "Dataset cannot be read";
    /// A line or document of the dataset is not what its format asks for.
    DatasetInvalid = "E4003", 422, "Dataset is not valid";
    /// The dataset has no token to score.
    DatasetEmpty = "E4004", 422, "Dataset has nothing to score";
    /// The method contradicts itself, or does not fit the model or a dataset.
    MethodInvalid = "E4005", 422, "Method does not fit";
    /// The tokenizer has neither BOS nor EOS, which `rolling` needs as prefix.
    NoPrefixToken = "E4006", 422, "Tokenizer has no prefix token";
    /// The chat template refuses a document, or does not say where the assistant speaks.
    ChatRefused = "E4007", 422, "Chat template refuses a document";
    /// A reference to a hub of models and datasets, and the service does not use one.
    HubDisabled = "E4008", 422, "No hub is used";

    /// The checkpoint does not exist, cannot be read or is damaged.
    CheckpointUnreadable = "E5001", 422, "Checkpoint cannot be read";
    /// No family of this architecture is built in.
    ArchitectureUnsupported = "E5002", 422, "Architecture not supported";
    /// A tensor is missing, unused, or has another shape or type than the configuration says.
    TensorMismatch = "E5003", 422, "Tensors do not match the configuration";
    /// The checkpoint is a pickle, which may run code when loaded.
    PickleRefused = "E5004", 422, "Pickle checkpoints are refused";
    /// The tokenizer is missing, damaged or of an unsupported kind.
    TokenizerUnusable = "E5005", 422, "Tokenizer cannot be used";
    /// A weight format or dtype is not supported.
    DtypeUnsupported = "E5006", 422, "Dtype not supported";
    /// The checkpoint has no chat template, or one that is not valid.
    ChatTemplateUnusable = "E5007", 422, "Chat template cannot be used";
}

/// By hand, because the derive does not see through the macro to the names that travel.
impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        let lines: Vec<String> = Self::ALL
            .iter()
            .map(|code| format!("* `{code}` {}", code.title()))
            .collect();
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .description(Some(format!(
                "Names an error to programs; `GET /errors` explains each.\n\n{}",
                lines.join("\n")
            )))
            .into()
    }
}

impl ToSchema for ErrorCode {}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ErrorCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not an error code of Assay"))
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn codes_are_unique_and_parse_back() {
        for (index, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(code.as_str().parse(), Ok(*code));
            assert!(
                ErrorCode::ALL[..index]
                    .iter()
                    .all(|other| other.as_str() != code.as_str())
            );
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn the_schema_has_the_codes_that_travel() {
        let schema = serde_json::to_value(<ErrorCode as utoipa::PartialSchema>::schema()).unwrap();
        let codes = serde_json::to_value(ErrorCode::ALL).unwrap();
        assert_eq!(schema["enum"], codes);
    }
}
