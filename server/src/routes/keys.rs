//! Keys of the caller's project.

use std::convert::Infallible;
use std::str::FromStr;

use assay_api::{CreatedKey, ErrorCode, Key, NewKey, Page};
use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::JsonBody;
use crate::faults::Faults;
use crate::problems::{OfKey, OfList, OfNewKey};
use crate::query::{Cursor, Limit, Query, present};

/// Characters of a key's name at most.
const LONGEST_NAME: usize = 200;

/// Make a key
///
/// Of the project of the key that asks. The answer alone has the secret: the service keeps a digest
/// of it and cannot show it again.
#[utoipa::path(
    post,
    path = "/keys",
    operation_id = "create_key",
    tag = "keys",
    request_body(
        content = NewKey,
        description = "What the key is for, and what it may do.",
        example = json!({
            "name": "nightly evaluation",
            "scope": "submit",
            "expires_at": "2027-12-31T00:00:00Z"
        }),
    ),
    responses(
        (status = 201, description = "The key, with its secret.", body = CreatedKey),
        OfNewKey,
    ),
)]
pub(crate) async fn create(
    caller: Caller,
    JsonBody { typed: new, .. }: JsonBody<NewKey>,
) -> Result<Response, ApiError> {
    check(&new)?;
    let created: CreatedKey = caller.ledger.create_key(&new).await?;
    let unkept = [(CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, unkept, Json(created)).into_response())
}

/// Refuses what no key can have.
pub(crate) fn check(new: &NewKey) -> Result<(), ApiError> {
    let mut faults = Faults::default();
    let length = new.name.chars().count();
    faults.require(
        (1..=LONGEST_NAME).contains(&length),
        "name",
        format!("has {length} characters; it takes 1 to {LONGEST_NAME}"),
    );
    let now = chrono::Utc::now();
    faults.require(
        new.expires_at.is_none_or(|at| at > now),
        "expires_at",
        "is in the past; a key that has expired opens nothing",
    );
    faults.into_result()
}

/// The id of a key. What has another form is that of none.
pub(crate) struct KeyId(String);

impl<S: Send + Sync> FromRequestParts<S> for KeyId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        // Bytes that are not UTF-8 are no id either.
        path.map_or_else(|_| "\u{fffd}".parse(), |Path(id)| id.parse())
    }
}

impl FromStr for KeyId {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // The database takes no NUL.
        Ok(Self(text.replace('\0', "")))
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeysQuery {
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<KeyId>>,
    /// Keys of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

/// List keys
///
/// Of the project, without their secrets, the newest first, also those that are of no use any
/// longer.
#[utoipa::path(
    get,
    path = "/keys",
    operation_id = "list_keys",
    tag = "keys",
    params(KeysQuery),
    responses((status = 200, description = "A page of keys.", body = Page<Key>), OfList),
)]
pub(crate) async fn list(
    caller: Caller,
    Query(query): Query<KeysQuery>,
) -> Result<Json<Page<Key>>, ApiError> {
    let before = query.cursor.map(|cursor| cursor.0.0);
    let keys = caller
        .ledger
        .keys(before.as_deref(), query.limit.rows())
        .await?;
    Ok(Json(query.limit.page(keys, |key| key.id.clone())))
}

/// Revoke a key
///
/// From this moment on it opens nothing. Revoking it again changes nothing; what it has posted stays.
#[utoipa::path(
    delete,
    path = "/keys/{id}",
    operation_id = "revoke_key",
    tag = "keys",
    params(("id" = String, Path, description = "Id of the key.")),
    responses((status = 200, description = "The revoked key.", body = Key), OfKey),
)]
pub(crate) async fn revoke(caller: Caller, KeyId(id): KeyId) -> Result<Json<Key>, ApiError> {
    let revoked = caller.ledger.revoke_key(&id).await?;
    revoked.map(Json).ok_or_else(|| {
        ApiError::new(
            ErrorCode::NotFound,
            format!("there is no key {id:?}; GET /keys lists the keys"),
        )
    })
}
