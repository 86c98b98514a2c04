//! Keys: made, looked up, revoked. The ledger keeps a digest of each and never the key.

mod token;

pub use token::KeyToken;

use assay_api::{CreatedKey, Key, NewKey, Scope};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::rows::{bigint, parse};
use crate::{ProjectId, Store, StoreError};

/// A key that may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// Its id.
    pub id: String,
    /// The project that it acts in.
    pub project: ProjectId,
    /// What it may do.
    pub scope: Scope,
}

#[derive(FromRow)]
struct KeyRow {
    id: String,
    name: String,
    scope: String,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
}

impl KeyRow {
    fn into_key(self) -> Result<Key, StoreError> {
        Ok(Key {
            id: self.id,
            name: self.name,
            scope: parse(self.scope)?,
            created_at: self.created_at,
            expires_at: self.expires_at,
            last_used_at: self.last_used_at,
            revoked_at: self.revoked_at,
        })
    }
}

#[derive(FromRow)]
struct Presented {
    sha256: Vec<u8>,
    project_id: ProjectId,
    scope: String,
    is_valid: bool,
    use_is_news: bool,
}

impl Store {
    /// What a key may do, if it is one: known, not expired, not revoked. Its use is noted once a
    /// minute at most.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn present_key(
        &self,
        token: &KeyToken,
        now: Option<DateTime<Utc>>,
    ) -> Result<Option<StoredKey>, StoreError> {
        let found: Option<Presented> = sqlx::query_as(
            "select sha256, project_id, scope::text as scope,
                    revoked_at is null and coalesce(expires_at > coalesce($2, now()), true)
                        as is_valid,
                    coalesce(last_used_at <= coalesce($2, now()) - interval '1 minute', true)
                        as use_is_news
             from keys where id = $1",
        )
        .bind(token.id())
        .bind(now)
        .fetch_optional(&self.pool)
        .await?;
        let Some(found) = found.filter(|found| token.is(&found.sha256) && found.is_valid) else {
            return Ok(None);
        };
        if found.use_is_news {
            // Of several requests at once, one writes.
            sqlx::query(
                "update keys set last_used_at = coalesce($2, now())
                 where id = $1 and coalesce(
                     last_used_at <= coalesce($2, now()) - interval '1 minute', true
                 )",
            )
            .bind(token.id())
            .bind(now)
            .execute(&self.pool)
            .await?;
        }
        Ok(Some(StoredKey {
            id: token.id().to_owned(),
            project: found.project_id,
            scope: parse(found.scope)?,
        }))
    }

    /// Whether there is a key, be it of no use any longer.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn has_keys(&self) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar("select exists (select from keys)").fetch_one(&self.pool);
        Ok(found.await?)
    }

    /// Whether there is a key that may act.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn has_usable_keys(&self) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar(
            "select exists (
                 select from keys
                 where revoked_at is null and coalesce(expires_at > now(), true)
             )",
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Makes a key of the project.
    ///
    /// # Errors
    /// The database does not answer, or the system has no random numbers.
    pub async fn create_key(&self, new: &NewKey) -> Result<CreatedKey, StoreError> {
        let token =
            KeyToken::random().map_err(|error| StoreError::NoRandomness(error.to_string()))?;
        let key = self.store_key(new, &token).await?;
        let key = key.ok_or_else(|| StoreError::Unexpected("the id of a new key".to_owned()))?;
        Ok(CreatedKey {
            key,
            secret: token.expose().to_owned(),
        })
    }

    /// Stores a key of the project that was chosen elsewhere. None if there is one of this id.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn store_key(
        &self,
        new: &NewKey,
        token: &KeyToken,
    ) -> Result<Option<Key>, StoreError> {
        let mut tx = self.pool.begin().await?;
        let row: Option<KeyRow> = sqlx::query_as(
            "insert into keys (id, project_id, name, scope, sha256, expires_at)
             values ($1, $2, $3, $4::key_scope, $5, $6)
             on conflict (id) do nothing
             returning id, name, scope::text as scope, created_at, expires_at, last_used_at,
                       revoked_at",
        )
        .bind(token.id())
        .bind(self.own_project())
        .bind(&new.name)
        .bind(new.scope.as_str())
        .bind(&token.sha256()[..])
        .bind(new.expires_at)
        .fetch_optional(&mut *tx)
        .await?;
        if row.is_some() {
            self.note(&mut tx, "create_key", token.id(), 201).await?;
        }
        tx.commit().await?;
        row.map(KeyRow::into_key).transpose()
    }

    /// Keys of the project, the newest first, those whose ids come before `before`.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn keys(&self, before: Option<&str>, limit: u32) -> Result<Vec<Key>, StoreError> {
        let rows: Vec<KeyRow> = sqlx::query_as(
            "select id, name, scope::text as scope, created_at, expires_at, last_used_at, revoked_at
             from keys
             where project_id = $1 and ($2::text is null or id < $2)
             order by id desc limit $3",
        )
        .bind(self.own_project())
        .bind(before)
        .bind(bigint(limit.into())?)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(KeyRow::into_key).collect()
    }

    /// Revokes a key of the project, from this moment on; one that is revoked stays as it is. None
    /// if there is no such key.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn revoke_key(&self, id: &str) -> Result<Option<Key>, StoreError> {
        let mut tx = self.pool.begin().await?;
        let revoked = sqlx::query(
            "update keys set revoked_at = now()
             where id = $1 and project_id = $2 and revoked_at is null",
        )
        .bind(id)
        .bind(self.own_project())
        .execute(&mut *tx)
        .await?;
        if revoked.rows_affected() > 0 {
            self.note(&mut tx, "revoke_key", id, 200).await?;
        }
        let row: Option<KeyRow> = sqlx::query_as(
            "select id, name, scope::text as scope, created_at, expires_at, last_used_at, revoked_at
             from keys where id = $1 and project_id = $2",
        )
        .bind(id)
        .bind(self.own_project())
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        row.map(KeyRow::into_key).transpose()
    }
}
