//! Extractors whose rejections say what is wrong and what would be right.

use assay_api::{ErrorCode, JobId};
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::edge::{BODY_LIMIT, TIMEOUT};
use crate::error::ApiError;

/// A JSON body, typed and as it was sent.
pub(crate) struct JsonBody<T> {
    /// The body as its type.
    pub(crate) typed: T,
    /// The same body as parsed JSON, by which repeated requests are compared.
    pub(crate) value: Value,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        require_json(request.headers())?;
        let too_large = || {
            ApiError::new(
                ErrorCode::PayloadTooLarge,
                format!(
                    "the body is larger than {BODY_LIMIT} bytes; upload datasets with PUT \
                     /datasets/{{name}} or name them by path"
                ),
            )
        };
        // Some operations may take long, but none because of how slowly it is asked.
        let bytes = timeout(TIMEOUT, Bytes::from_request(request, state))
            .await
            .map_err(|_| {
                let seconds = TIMEOUT.as_secs();
                ApiError::new(
                    ErrorCode::Timeout,
                    format!("the body did not arrive within {seconds} seconds; send it again"),
                )
            })?
            .map_err(|rejection| {
                if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                    too_large()
                } else {
                    ApiError::new(
                        ErrorCode::InvalidRequest,
                        "the body ended before it was complete",
                    )
                }
            })?;
        if bytes.len() > BODY_LIMIT {
            return Err(too_large());
        }
        parse(&bytes)
    }
}

fn require_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers
        .get(CONTENT_TYPE)
        .map_or(Ok(""), |kind| kind.to_str())
        .unwrap_or("");
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        ErrorCode::UnsupportedMediaType,
        format!("the Content-Type is {kind:?}; send the body as `application/json`"),
    ))
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<JsonBody<T>, ApiError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        ApiError::new(
            ErrorCode::MalformedJson,
            format!("the body is not JSON: {error}"),
        )
    })?;
    // serde would take an array for the fields in their order.
    if !value.is_object() {
        let detail = "is not a JSON object; /docs shows what this operation takes";
        return Err(ApiError::of_field(
            ErrorCode::InvalidRequest,
            "body",
            detail,
        ));
    }
    // From the bytes and not from `value`, which has silently dropped repeated fields.
    let typed = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(bytes))
        .map_err(|error| {
            let detail = error.inner().to_string();
            ApiError::of_field(ErrorCode::InvalidRequest, field(&error, &detail), detail)
        })?;
    if let Some(path) = nul(&value) {
        let detail = "has a NUL character, which cannot be stored; leave it out";
        return Err(ApiError::of_field(ErrorCode::InvalidRequest, path, detail));
    }
    Ok(JsonBody { typed, value })
}

/// Path of the first string with a NUL, which `jsonb` does not take.
fn nul(value: &Value) -> Option<String> {
    let below = |name: String, rest: String| match rest.as_str() {
        "" => name,
        rest if rest.starts_with('[') => name + rest,
        rest => format!("{name}.{rest}"),
    };
    match value {
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(index, item)| nul(item).map(|rest| below(format!("[{index}]"), rest))),
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            if name.contains('\0') {
                return Some(name.replace('\0', "\\0"));
            }
            nul(field).map(|rest| below(name.clone(), rest))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The path of the field at fault. serde reports a missing or repeated field at the object that
/// should have it once, so its name comes from the text.
pub(crate) fn field<E>(error: &serde_path_to_error::Error<E>, detail: &str) -> String {
    let path = error.path().to_string();
    let name = ["missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| detail.strip_prefix(start)?.split('`').next());
    match (path.as_str(), name) {
        (".", Some(name)) => name.to_owned(),
        (parent, Some(name)) => format!("{parent}.{name}"),
        (".", None) => "body".to_owned(),
        (path, None) => path.to_owned(),
    }
}

/// The `{id}` of a job. What is not a UUID names no job.
pub(crate) struct JobPath(pub(crate) JobId);

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(id)| id);
        match id.as_deref().map(str::parse) {
            Ok(Ok(id)) => Ok(Self(id)),
            _ => Err(ApiError::new(
                ErrorCode::NotFound,
                "there is no such job: the id in the path is not a UUID; GET /jobs lists the jobs",
            )),
        }
    }
}

/// The header `Idempotency-Key`, if it was sent.
pub(crate) struct IdempotencyKey(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Some(key) = parts.headers.get("idempotency-key") else {
            return Ok(Self(None));
        };
        let printable = |byte: &u8| (b' '..=b'~').contains(byte);
        match key.to_str() {
            Ok(key) if (1..=255).contains(&key.len()) && key.as_bytes().iter().all(printable) => {
                Ok(Self(Some(key.to_owned())))
            }
            _ => Err(ApiError::of_field(
                ErrorCode::InvalidRequest,
                "Idempotency-Key",
                "takes 1 to 255 printable ASCII characters, such as a UUID",
            )),
        }
    }
}

#[cfg(test)]
mod tests;
