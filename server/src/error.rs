//! The errors of handlers. [`crate::edge`] turns them into answers.

use std::time::Duration;

use assay_api::{ErrorCode, Problem};
use assay_store::StoreError;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::task::JoinError;

/// Why a request is not answered as asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// The caller's to mend; sent as it is.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// The same, and the request may be sent again after so many seconds.
    #[error("{}", .0.detail)]
    Later(Box<Problem>, u64),
    /// The ledger failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A blocking task panicked.
    #[error(transparent)]
    Task(#[from] JoinError),
    /// Something of the host failed, with this cause.
    #[error("{0}")]
    Internal(String),
    /// A handler panicked, with this message.
    #[error("panicked: {0}")]
    Panic(String),
}

/// What [`crate::edge`] finds in the extensions of an answer that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Sent to the caller.
    pub(crate) problem: Problem,
    /// Logged, never sent.
    pub(crate) cause: Option<String>,
}

impl ApiError {
    /// A problem of this code; `detail` says what happened and what to do.
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Problem::new(code, detail).into()
    }

    /// A problem of one field, header or parameter of the request.
    pub(crate) fn of_field(
        code: ErrorCode,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) -> Self {
        Problem::of_field(code, field, detail).into()
    }

    /// A problem of this code that is none any more after `wait`.
    pub(crate) fn later(code: ErrorCode, detail: impl Into<String>, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self::Later(Box::new(Problem::new(code, detail)), seconds.max(1))
    }

    fn into_failure(self) -> Failure {
        let (code, detail) = match &self {
            Self::Problem(problem) | Self::Later(problem, _) => {
                return Failure {
                    problem: (**problem).clone(),
                    cause: None,
                };
            }
            Self::Store(error) if error.is_transient() => (
                ErrorCode::Unavailable,
                "the database does not answer at the moment; send the same request again in a \
                 few seconds",
            ),
            Self::Store(_) | Self::Task(_) | Self::Internal(_) | Self::Panic(_) => (
                ErrorCode::Internal,
                "the service failed; its log has the cause under this request id",
            ),
        };
        Failure {
            problem: Problem::new(code, detail),
            cause: Some(self.to_string()),
        }
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let retry_after = match &self {
            Self::Later(_, seconds) => Some(HeaderValue::from(*seconds)),
            _ => None,
        };
        let failure = self.into_failure();
        let mut response = status(&failure.problem).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        if failure.problem.code == ErrorCode::Unauthenticated {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        response.extensions_mut().insert(failure);
        response
    }
}

/// The HTTP status of a problem.
pub(crate) fn status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.status).expect("codes carry valid statuses")
}
