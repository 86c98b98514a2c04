//! Errors over HTTP: RFC 9457 `application/problem+json`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ErrorCode;

/// An error answer (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A URI reference that names the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short sentence that is the same for every occurrence of the code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The code, for programs.
    pub code: ErrorCode,
    /// What happened here and what to do about it.
    pub detail: String,
    /// The id under which the log has this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The fields at fault, where there are some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Path of the field in the body, such as `datasets[0].field`.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub detail: String,
}

impl Problem {
    /// A problem of this code; `detail` says what happened and what to do.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/errors#{code}"),
            title: code.title().to_owned(),
            status: code.http_status(),
            code,
            detail: detail.into(),
            request_id: None,
            errors: Vec::new(),
        }
    }

    /// A problem of one field of the request.
    pub fn of_field(code: ErrorCode, field: impl Into<String>, detail: impl Into<String>) -> Self {
        let (field, detail) = (field.into(), detail.into());
        let mut problem = Self::new(code, format!("{field}: {detail}"));
        problem.errors.push(FieldError { field, detail });
        problem
    }
}
