//! The audit log: who wrote what.

use assay_api::AuditEntry;
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use crate::rows::bigint;
use crate::{Store, StoreError};

#[derive(FromRow)]
struct EntryRow {
    number: i64,
    at: DateTime<Utc>,
    key_id: Option<String>,
    action: String,
    subject: String,
    status: Option<i16>,
    request_id: Option<String>,
}

impl EntryRow {
    fn into_entry(self) -> Result<AuditEntry, StoreError> {
        let status = self.status.map(u16::try_from).transpose();
        Ok(AuditEntry {
            number: self.number,
            at: self.at,
            key: self.key_id,
            action: self.action,
            subject: self.subject,
            status: status.map_err(|e| StoreError::Unexpected(format!("status: {e}")))?,
            request_id: self.request_id,
        })
    }
}

impl Store {
    /// Notes a write in the transaction that makes it, if somebody acts. `status` is that of the
    /// answer to a request.
    pub(crate) async fn note(
        &self,
        tx: &mut PgConnection,
        action: &str,
        subject: &str,
        status: i16,
    ) -> Result<(), StoreError> {
        let Some(actor) = &self.actor else {
            return Ok(());
        };
        sqlx::query(
            "insert into audit_log (project_id, key_id, action, subject, status, request_id)
             values ($1, $2, $3, $4, case when $6::text is not null then $5::smallint end, $6)",
        )
        .bind(actor.project)
        .bind(&actor.key)
        .bind(action)
        .bind(subject)
        .bind(status)
        .bind(&actor.request)
        .execute(tx)
        .await?;
        Ok(())
    }

    /// Writes in the project, the newest first, those before number `before`.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn audit_log(
        &self,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let rows: Vec<EntryRow> = sqlx::query_as(
            "select number, at, key_id, action, subject, status, request_id
             from audit_log
             where project_id = $1 and number < coalesce($2, 9223372036854775807)
             order by number desc limit $3",
        )
        .bind(self.own_project())
        .bind(before)
        .bind(bigint(limit.into())?)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(EntryRow::into_entry).collect()
    }
}
