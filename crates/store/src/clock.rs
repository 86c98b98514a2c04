//! The database's clock, by which the ledger goes.

use chrono::{DateTime, Utc};

use crate::{Store, StoreError};

impl Store {
    /// What the database's clock says.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn clock(&self) -> Result<DateTime<Utc>, StoreError> {
        Ok(sqlx::query_scalar("select clock_timestamp()")
            .fetch_one(&self.pool)
            .await?)
    }
}
