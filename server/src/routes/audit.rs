//! The audit log of the caller's project.

use assay_api::{AuditEntry, Page};
use axum::Json;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::access::Caller;
use crate::error::ApiError;
use crate::problems::OfList;
use crate::query::{Cursor, Limit, Query, present};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// `next` of the page before.
    #[serde(default, deserialize_with = "present")]
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<i64>>,
    /// Entries of a page.
    #[serde(default)]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit<1000>,
}

/// Read the audit log
///
/// Who posted and cancelled jobs, uploaded and deleted datasets, made and revoked keys of the
/// project; the newest first. Refused requests are in the service's log alone.
#[utoipa::path(
    get,
    path = "/audit",
    operation_id = "read_audit_log",
    tag = "keys",
    params(AuditQuery),
    responses((status = 200, description = "A page of writes.", body = Page<AuditEntry>), OfList),
)]
pub(crate) async fn list(
    caller: Caller,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Page<AuditEntry>>, ApiError> {
    let before = query.cursor.map(|cursor| cursor.0);
    let entries = caller.ledger.audit_log(before, query.limit.rows()).await?;
    Ok(Json(query.limit.page(entries, |last| last.number)))
}
