//! Names of uploaded datasets.

use assay_api::Upload;
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, count};
use crate::{ProjectId, Store, StoreError};

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutUpload {
    /// What the name stands for now.
    pub upload: Upload,
    /// The digest that it stood for before, if there was one.
    pub replaced: Option<String>,
}

#[derive(FromRow)]
struct UploadRow {
    name: String,
    digest: String,
    bytes: i64,
    created_at: DateTime<Utc>,
}

impl UploadRow {
    fn into_upload(self) -> Result<Upload, StoreError> {
        Ok(Upload {
            name: self.name,
            digest: self.digest,
            bytes: count(self.bytes)?,
            created_at: self.created_at,
        })
    }
}

impl Store {
    /// Makes a name stand for the file of a digest, which the caller has put in its place. Another
    /// may just have removed it (see [`Store::if_digest_unused`]), so the caller looks for it again
    /// afterwards; from then on it stays.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn put_upload(
        &self,
        name: &str,
        digest: &str,
        bytes: u64,
    ) -> Result<PutUpload, StoreError> {
        let bytes = bigint(bytes)?;
        let project = self.own_project();
        let mut tx = self.pool.begin().await?;
        lock_digest(&mut tx, digest).await?;
        loop {
            let new: Option<UploadRow> = sqlx::query_as(
                "insert into uploads (name, digest, bytes, project_id) values ($1, $2, $3, $4)
                 on conflict (project_id, name) do nothing
                 returning name, digest, bytes, created_at",
            )
            .bind(name)
            .bind(digest)
            .bind(bytes)
            .bind(project)
            .fetch_optional(&mut *tx)
            .await?;
            let (row, replaced) = match new {
                Some(row) => (row, None),
                None => match replace(&mut tx, project, name, digest, bytes).await? {
                    Some((row, old)) => (row, Some(old)),
                    // Deleted between the two statements: the name is free again.
                    None => continue,
                },
            };
            let status = if replaced.is_some() { 200 } else { 201 };
            self.note(&mut tx, "upload_dataset", name, status).await?;
            tx.commit().await?;
            let upload = row.into_upload()?;
            return Ok(PutUpload { upload, replaced });
        }
    }

    /// What a name stands for.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn upload(&self, name: &str) -> Result<Option<Upload>, StoreError> {
        let row: Option<UploadRow> = sqlx::query_as(
            "select name, digest, bytes, created_at from uploads
                 where name = $1 and project_id = $2",
        )
        .bind(name)
        .bind(self.own_project())
        .fetch_optional(&self.pool)
        .await?;
        row.map(UploadRow::into_upload).transpose()
    }

    /// Uploads by name, those behind `after`, `limit` at most.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn uploads(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Upload>, StoreError> {
        let rows: Vec<UploadRow> = sqlx::query_as(
            "select name, digest, bytes, created_at from uploads
             where project_id = $3 and ($1::text is null or name > $1)
             order by name limit $2",
        )
        .bind(after)
        .bind(bigint(limit.into())?)
        .bind(self.own_project())
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(UploadRow::into_upload).collect()
    }

    /// Removes a name, and answers what it stood for.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn delete_upload(&self, name: &str) -> Result<Option<Upload>, StoreError> {
        let mut tx = self.pool.begin().await?;
        // Waits for the creation of a job that has just looked the name up, so that whoever asks
        // for the digest afterwards sees that job.
        let row: Option<UploadRow> = sqlx::query_as(
            "delete from uploads where name = $1 and project_id = $2
             returning name, digest, bytes, created_at",
        )
        .bind(name)
        .bind(self.own_project())
        .fetch_optional(&mut *tx)
        .await?;
        if row.is_some() {
            self.note(&mut tx, "delete_dataset", name, 200).await?;
        }
        tx.commit().await?;
        row.map(UploadRow::into_upload).transpose()
    }

    /// Whether a name stands for the digest, or a job that has not ended needs its file. A moment
    /// later it may be otherwise: see [`Store::if_digest_unused`].
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn digest_in_use(&self, digest: &str) -> Result<bool, StoreError> {
        in_use(&mut *self.pool.acquire().await?, digest).await
    }

    /// Calls `remove`, which removes the file of the digest, if no name stands for it and no job
    /// that has not ended needs it. Until it returns no name can be made to stand for the digest:
    /// `remove` should not take long. None if the digest is in use.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn if_digest_unused<T>(
        &self,
        digest: &str,
        remove: impl FnOnce() -> T,
    ) -> Result<Option<T>, StoreError> {
        let mut tx = self.pool.begin().await?;
        lock_digest(&mut tx, digest).await?;
        // A statement of its own, so that it sees what was committed during the wait.
        let unused = !in_use(&mut tx, digest).await?;
        let removed = unused.then(remove);
        tx.rollback().await?;
        Ok(removed)
    }
}

/// Waits for the right to name or to remove the file of a digest, until the transaction ends.
async fn lock_digest(tx: &mut PgConnection, digest: &str) -> Result<(), StoreError> {
    // Two digests that share the lock's 64 bits wait for each other, which harms nothing.
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('assay upload ' || $1, 0))")
        .bind(digest)
        .execute(tx)
        .await?;
    Ok(())
}

async fn in_use(connection: &mut PgConnection, digest: &str) -> Result<bool, StoreError> {
    Ok(sqlx::query_scalar(
        "select exists (select from uploads where digest = $1)
             or exists (
                 select from datasets d join jobs j on j.id = d.job_id
                 where d.source ->> 'upload_digest' = $1 and j.finished_at is null
             )",
    )
    .bind(digest)
    .fetch_one(connection)
    .await?)
}

async fn replace(
    tx: &mut PgConnection,
    project: ProjectId,
    name: &str,
    digest: &str,
    bytes: i64,
) -> Result<Option<(UploadRow, String)>, StoreError> {
    let old: Option<String> = sqlx::query_scalar(
        "select digest from uploads where name = $1 and project_id = $2 for update",
    )
    .bind(name)
    .bind(project)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(old) = old else { return Ok(None) };
    let row = sqlx::query_as(
        "update uploads set digest = $2, bytes = $3, created_at = now()
         where name = $1 and project_id = $4
         returning name, digest, bytes, created_at",
    )
    .bind(name)
    .bind(digest)
    .bind(bytes)
    .bind(project)
    .fetch_one(&mut *tx)
    .await?;
    Ok(Some((row, old)))
}

/// Whether the name still stands for the digest. Until the transaction ends it goes on doing so.
pub(crate) async fn hold(
    tx: &mut PgConnection,
    project: ProjectId,
    name: &str,
    digest: &str,
) -> Result<bool, StoreError> {
    let held: Option<i32> = sqlx::query_scalar(
        "select 1 from uploads
             where name = $1 and digest = $2 and project_id = $3 for share",
    )
    .bind(name)
    .bind(digest)
    .bind(project)
    .fetch_optional(tx)
    .await?;
    Ok(held.is_some())
}
