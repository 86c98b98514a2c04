//! Projects, and the ledger as one of them sees it.

use std::sync::Arc;

use assay_api::{
    AuditEntry, CreatedKey, Delivery, DocumentRow, Job, JobId, JobResult, Key, NewKey,
    PartialResult, ShardRow, TokenRow, Upload,
};
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, count, int};
use crate::{
    Cancellation, Creation, Histogram, JobFilter, KeyToken, NewJob, PutUpload, RowFacts, Store,
    StoreError, StoredEvent, TokenSpan,
};

/// A project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, sqlx::Type)]
#[sqlx(transparent)]
pub struct ProjectId(i32);

impl ProjectId {
    /// The project `default`, which everything belongs to that is asked without a key.
    pub const DEFAULT: Self = Self(1);
}

/// A project and its quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its number.
    pub id: ProjectId,
    /// Its name.
    pub name: String,
    /// Added to the priority of its jobs.
    pub priority: i32,
    /// Jobs that may be there without having ended; none is unlimited.
    pub max_unfinished_jobs: Option<u32>,
    /// Tokens that may be planned in a day of UTC; none is unlimited.
    pub tokens_per_day: Option<u64>,
}

/// Changes of a project. What is none stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProjectChanges {
    /// The new priority.
    pub priority: Option<i32>,
    /// The new quota of jobs; `Some(None)` takes it away.
    pub max_unfinished_jobs: Option<Option<u32>>,
    /// The new quota of tokens; `Some(None)` takes it away.
    pub tokens_per_day: Option<Option<u64>>,
}

#[derive(FromRow)]
struct ProjectRow {
    id: ProjectId,
    name: String,
    priority: i32,
    max_unfinished_jobs: Option<i32>,
    tokens_per_day: Option<i64>,
}

impl ProjectRow {
    fn into_project(self) -> Result<Project, StoreError> {
        Ok(Project {
            id: self.id,
            name: self.name,
            priority: self.priority,
            max_unfinished_jobs: self
                .max_unfinished_jobs
                .map(crate::rows::index_of)
                .transpose()?,
            tokens_per_day: self.tokens_per_day.map(count).transpose()?,
        })
    }
}

/// Who acts, in which project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The project.
    pub project: ProjectId,
    /// The key, if one was needed.
    pub key: Option<String>,
    /// The request, if there is one.
    pub request: Option<String>,
}

impl Store {
    /// The ledger as this actor sees it: nothing but its own project's.
    #[must_use]
    pub fn within(&self, actor: Actor) -> ProjectStore {
        ProjectStore(Self {
            pool: self.pool.clone(),
            actor: Some(Arc::new(actor)),
        })
    }

    /// The project that is seen; none sees all of them.
    pub(crate) fn project(&self) -> Option<ProjectId> {
        self.actor.as_ref().map(|actor| actor.project)
    }

    /// The project that what is written belongs to.
    pub(crate) fn own_project(&self) -> ProjectId {
        self.project().unwrap_or(ProjectId::DEFAULT)
    }

    /// Projects by name.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn projects(&self) -> Result<Vec<Project>, StoreError> {
        let rows: Vec<ProjectRow> = sqlx::query_as(
            "select id, name, priority, max_unfinished_jobs, tokens_per_day
             from projects order by name",
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(ProjectRow::into_project).collect()
    }

    /// The project of this name.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn project_named(&self, name: &str) -> Result<Option<Project>, StoreError> {
        let row: Option<ProjectRow> = sqlx::query_as(
            "select id, name, priority, max_unfinished_jobs, tokens_per_day
             from projects where name = $1",
        )
        .bind(name)
        .fetch_optional(&self.pool)
        .await?;
        row.map(ProjectRow::into_project).transpose()
    }

    /// Makes a project without quotas. False if the name is taken.
    ///
    /// # Errors
    /// The name is not of the form that the schema asks for, or the database does not answer.
    pub async fn create_project(&self, name: &str) -> Result<bool, StoreError> {
        let made = sqlx::query(
            "insert into projects (name) values ($1)
             on conflict on constraint projects_name_unique do nothing",
        )
        .bind(name)
        .execute(&self.pool)
        .await?;
        Ok(made.rows_affected() > 0)
    }

    /// Changes a project. Its jobs that have not ended are claimed by the new priority from then on.
    /// None if there is no such project.
    ///
    /// # Errors
    /// A value is out of the range that the schema allows, or the database does not answer.
    pub async fn set_project(
        &self,
        name: &str,
        changes: &ProjectChanges,
    ) -> Result<Option<Project>, StoreError> {
        let jobs = changes.max_unfinished_jobs;
        let tokens = changes.tokens_per_day;
        let mut tx = self.pool.begin().await?;
        let row: Option<ProjectRow> = sqlx::query_as(
            "update projects
             set priority = coalesce($2, priority),
                 max_unfinished_jobs = case when $3 then $4 else max_unfinished_jobs end,
                 tokens_per_day = case when $5 then $6 else tokens_per_day end
             where name = $1
             returning id, name, priority, max_unfinished_jobs, tokens_per_day",
        )
        .bind(name)
        .bind(changes.priority)
        .bind(jobs.is_some())
        .bind(jobs.flatten().map(int).transpose()?)
        .bind(tokens.is_some())
        .bind(tokens.flatten().map(bigint).transpose()?)
        .fetch_optional(&mut *tx)
        .await?;
        // Ends the lock: who holds a project waits for no job.
        tx.commit().await?;
        let Some(row) = row else { return Ok(None) };
        if changes.priority.is_some() {
            sqlx::query(
                "update jobs j set project_priority = p.priority
                 from projects p
                 where p.id = $1 and j.project_id = p.id and j.finished_at is null
                   and j.project_priority <> p.priority",
            )
            .bind(row.id)
            .execute(&self.pool)
            .await?;
        }
        row.into_project().map(Some)
    }
}

/// Whether job `$job` is of the project `$project`, or all projects are seen. A macro, because sqlx
/// takes statements as literals.
macro_rules! is_seen {
    ($job:literal, $project:literal) => {
        concat!(
            "exists (select from jobs seen where seen.id = ",
            $job,
            " and (",
            $project,
            "::integer is null or seen.project_id = ",
            $project,
            "))"
        )
    };
}
pub(crate) use is_seen;

/// Waits for the project's row, for those who must not pass a quota together.
pub(crate) async fn lock(tx: &mut PgConnection, project: ProjectId) -> Result<(), StoreError> {
    sqlx::query("select from projects where id = $1 for no key update")
        .bind(project)
        .execute(tx)
        .await?;
    Ok(())
}

/// The ledger as one project sees it, made by [`Store::within`]. What belongs to another project is
/// not there. Writes are noted in the audit log.
#[derive(Clone, Debug)]
pub struct ProjectStore(Store);

/// Functions of [`Store`], within the project.
macro_rules! within {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)+) => {
        impl ProjectStore {
            $(
                #[doc = concat!("[`Store::", stringify!($name), "`], within the project.")]
                ///
                /// # Errors
                /// The database does not answer.
                pub async fn $name(&self, $($argument: $kind),*) -> Result<$answer, StoreError> {
                    self.0.$name($($argument),*).await
                }
            )+
        }
    };
}

within! {
    create_job(new: &NewJob<'_>) -> Creation;
    job_of_key(key: &str, body: &serde_json::Value) -> Option<Creation>;
    job(id: JobId) -> Option<Job>;
    jobs(filter: &JobFilter, before: Option<JobId>, limit: u32) -> Vec<Job>;
    cancel_job(id: JobId) -> Cancellation;
    result(id: JobId) -> Option<JobResult>;
    row_facts(job: JobId) -> Vec<RowFacts>;
    documents(job: JobId, row: u32, from: u64, limit: u32) -> Vec<DocumentRow>;
    worst(job: JobId, row: u32, limit: u32) -> Vec<DocumentRow>;
    histogram(job: JobId, row: u32, bins: u32) -> Option<Histogram>;
    partial(id: JobId) -> Option<PartialResult>;
    tokens(job: JobId, row: u32, document: u64, from: u64, limit: u32) -> Vec<TokenRow>;
    token_spans(job: JobId, row: u32, after: Option<(u32, u64)>, limit: u32) -> Vec<TokenSpan>;
    shards(job: JobId, from: u32, limit: u32) -> Vec<ShardRow>;
    deliveries(job: JobId) -> Vec<Delivery>;
    retry_delivery(job: JobId, number: u32, now: Option<DateTime<Utc>>) -> bool;
    events(job: JobId, seen: u32) -> Vec<StoredEvent>;
    upload(name: &str) -> Option<Upload>;
    uploads(after: Option<&str>, limit: u32) -> Vec<Upload>;
    put_upload(name: &str, digest: &str, bytes: u64) -> PutUpload;
    delete_upload(name: &str) -> Option<Upload>;
    create_key(new: &NewKey) -> CreatedKey;
    store_key(new: &NewKey, token: &KeyToken) -> Option<Key>;
    keys(before: Option<&str>, limit: u32) -> Vec<Key>;
    revoke_key(id: &str) -> Option<Key>;
    audit_log(before: Option<i64>, limit: u32) -> Vec<AuditEntry>;
}

impl ProjectStore {
    /// The files of uploads.
    pub fn upload_files(&self) -> UploadFiles {
        self.0.upload_files()
    }
}

impl Store {
    /// The files of uploads.
    pub fn upload_files(&self) -> UploadFiles {
        UploadFiles(self.clone())
    }
}

/// What the ledger knows of the files of uploads. They are of no project: equal bytes are one file,
/// whoever sent them.
#[derive(Clone, Debug)]
pub struct UploadFiles(Store);

impl UploadFiles {
    /// [`Store::if_digest_unused`].
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn if_digest_unused<T>(
        &self,
        digest: &str,
        remove: impl FnOnce() -> T,
    ) -> Result<Option<T>, StoreError> {
        self.0.if_digest_unused(digest, remove).await
    }
}
