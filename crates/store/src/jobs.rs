//! Jobs: creation, reading, cancellation.

use std::collections::HashMap;

use assay_api::{DatasetProgress, Dtype, Job, JobId, JobRequest, JobState, Method, Progress};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::rows::{bigint, count, int, json, parse, to_json};
use crate::{Store, StoreError};

/// A validated request to store.
pub struct NewJob<'a> {
    /// A UUID version 7.
    pub id: JobId,
    /// The request.
    pub request: &'a JobRequest,
    /// The body as parsed JSON, compared when the idempotency key comes again.
    pub body: &'a serde_json::Value,
    /// The caller's `Idempotency-Key`.
    pub idempotency_key: Option<&'a str>,
    /// The method, defaults filled in.
    pub method: &'a Method,
    /// The dtype, `auto` resolved.
    pub dtype: Dtype,
}

/// What became of a request.
#[derive(Debug)]
pub enum Creation {
    /// A new job.
    Created(Job),
    /// The idempotency key came with the same body before: the same job.
    Existing(Job),
    /// The idempotency key came with another body before, for this job.
    Conflict(JobId),
}

/// What became of a cancellation.
#[derive(Debug)]
pub enum Cancellation {
    /// There is no such job.
    NotFound,
    /// The job had ended already.
    AlreadyEnded(Job),
    /// The job is cancelled; its workers stop at their next renewal.
    Cancelled(Job),
}

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only jobs in this state.
    pub state: Option<JobState>,
    /// Only jobs with this tag and value.
    pub tag: Option<(String, String)>,
}

#[derive(FromRow)]
struct JobRow {
    id: JobId,
    name: Option<String>,
    state: String,
    model: String,
    method: serde_json::Value,
    dtype: String,
    tags: serde_json::Value,
    error: Option<serde_json::Value>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    /// Seconds from the first claim of a shard to the end, or to now.
    running_seconds: Option<f64>,
}

#[derive(FromRow)]
struct DatasetRow {
    job_id: JobId,
    name: String,
    source: serde_json::Value,
    planned_tokens: Option<i64>,
    scored_tokens: i64,
    shards: i32,
    shards_left: i32,
}

/// The columns of [`JobRow`]. A macro, because sqlx takes statements as literals only.
macro_rules! select_job {
    () => {
        "select j.id, j.name, j.state::text as state, j.model, j.method, j.dtype, j.tags, j.error,
                j.created_at, j.started_at, j.finished_at,
                (extract(epoch from coalesce(j.finished_at, now()) - (
                    select min(a.started_at) from attempts a
                    where a.job_id = j.id and a.kind <> 'plan'
                )))::double precision as running_seconds
         from jobs j"
    };
}

impl Store {
    /// Stores a job, or finds the one that its idempotency key made before.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn create_job(&self, new: &NewJob<'_>) -> Result<Creation, StoreError> {
        let request = new.request;
        let mut tx = self.pool.begin().await?;
        // A concurrent insert of the same key makes this wait for its commit, then do nothing.
        let inserted = sqlx::query(
            "insert into jobs
                 (id, name, model, method, dtype, tags, body, idempotency_key, datasets_left)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             on conflict on constraint jobs_idempotency_key_unique do nothing",
        )
        .bind(new.id)
        .bind(&request.name)
        .bind(&request.model)
        .bind(to_json(new.method)?)
        .bind(new.dtype.as_str())
        .bind(to_json(&request.tags)?)
        .bind(new.body)
        .bind(new.idempotency_key)
        .bind(int(request.datasets.len())?)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if inserted == 0 {
            drop(tx);
            let made = match new.idempotency_key {
                Some(key) => self.job_of_key(key, new.body).await?,
                None => None,
            };
            return made.ok_or_else(|| StoreError::Unexpected("no job was inserted".to_owned()));
        }
        for (index, dataset) in request.datasets.iter().enumerate() {
            sqlx::query(
                "insert into datasets (job_id, index, name, source) values ($1, $2, $3, $4)",
            )
            .bind(new.id)
            .bind(int(index)?)
            .bind(dataset.name())
            .bind(to_json(dataset)?)
            .execute(&mut *tx)
            .await?;
        }
        crate::listen::wake_workers(&mut tx).await?;
        tx.commit().await?;
        Ok(Creation::Created(self.existing_job(new.id).await?))
    }

    /// What an idempotency key made before: [`Creation::Existing`] if it came with this body,
    /// else [`Creation::Conflict`]. None if the key is new.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn job_of_key(
        &self,
        key: &str,
        body: &serde_json::Value,
    ) -> Result<Option<Creation>, StoreError> {
        // jsonb equality ignores the order of keys and white space, and nothing else.
        let row: Option<(JobId, bool)> =
            sqlx::query_as("select id, body = $2 from jobs where idempotency_key = $1")
                .bind(key)
                .bind(body)
                .fetch_optional(&self.pool)
                .await?;
        Ok(match row {
            None => None,
            Some((id, true)) => Some(Creation::Existing(self.existing_job(id).await?)),
            Some((id, false)) => Some(Creation::Conflict(id)),
        })
    }

    /// One job.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        let rows = sqlx::query_as(concat!(select_job!(), " where j.id = $1"))
            .bind(id)
            .fetch_all(&self.pool)
            .await?;
        Ok(self.with_datasets(rows).await?.pop())
    }

    async fn existing_job(&self, id: JobId) -> Result<Job, StoreError> {
        let job = self.job(id).await?;
        job.ok_or_else(|| StoreError::Unexpected(format!("job {id} vanished")))
    }

    /// Jobs, newest first, those older than `before`.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: u32,
    ) -> Result<Vec<Job>, StoreError> {
        let tag = filter
            .tag
            .as_ref()
            .map(|(key, value)| serde_json::json!({ key: value }));
        let rows = sqlx::query_as(concat!(
            select_job!(),
            " where ($1::uuid is null or j.id < $1)
                and ($2::text is null or j.state = $2::job_state)
                and ($3::jsonb is null or j.tags @> $3)
              order by j.id desc
              limit $4"
        ))
        .bind(before)
        .bind(filter.state.map(JobState::as_str))
        .bind(tag)
        .bind(bigint(limit.into())?)
        .fetch_all(&self.pool)
        .await?;
        self.with_datasets(rows).await
    }

    /// Ends a job at the caller's wish. Running attempts end with it: their workers find out at
    /// the next renewal, and whatever they commit until then is dropped.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn cancel_job(&self, id: JobId) -> Result<Cancellation, StoreError> {
        let Some((mut tx, state)) = self.lock_job(id).await? else {
            return Ok(Cancellation::NotFound);
        };
        if state.is_final() {
            return Ok(Cancellation::AlreadyEnded(self.existing_job(id).await?));
        }
        sqlx::query("update jobs set state = 'cancelled', finished_at = now() where id = $1")
            .bind(id)
            .execute(&mut *tx)
            .await?;
        crate::end::end_attempts(&mut tx, id).await?;
        tx.commit().await?;
        Ok(Cancellation::Cancelled(self.existing_job(id).await?))
    }

    async fn with_datasets(&self, jobs: Vec<JobRow>) -> Result<Vec<Job>, StoreError> {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let rows: Vec<DatasetRow> = sqlx::query_as(
            "select job_id, name, source, planned_tokens, scored_tokens, shards, shards_left
             from datasets where job_id = any($1) order by job_id, index",
        )
        .bind(&ids)
        .fetch_all(&self.pool)
        .await?;
        let mut by_job: HashMap<JobId, Vec<DatasetRow>> = HashMap::new();
        for row in rows {
            by_job.entry(row.job_id).or_default().push(row);
        }
        jobs.into_iter()
            .map(|job| {
                let datasets = by_job.remove(&job.id).unwrap_or_default();
                to_job(job, datasets)
            })
            .collect()
    }
}

fn to_job(row: JobRow, datasets: Vec<DatasetRow>) -> Result<Job, StoreError> {
    let mut progress = Progress::default();
    let mut sources = Vec::with_capacity(datasets.len());
    let mut planned = Some(0);
    for dataset in datasets {
        let scored_tokens = count(dataset.scored_tokens)?;
        let planned_tokens = dataset.planned_tokens.map(count).transpose()?;
        progress.scored_tokens += scored_tokens;
        planned = planned.zip(planned_tokens).map(|(sum, n)| sum + n);
        progress.datasets.push(DatasetProgress {
            name: dataset.name,
            scored_tokens,
            planned_tokens,
            shards_done: count(dataset.shards - dataset.shards_left)?,
            shards: count(dataset.shards)?,
        });
        sources.push(json(dataset.source)?);
    }
    progress.planned_tokens = planned;
    let rate = row
        .running_seconds
        .filter(|seconds| *seconds > 0.0 && progress.scored_tokens > 0)
        .map(|seconds| progress.scored_tokens as f64 / seconds);
    progress.tokens_per_second = rate;
    let state: JobState = parse(row.state)?;
    progress.eta_seconds = rate.zip(planned).and_then(|(rate, planned)| {
        (!state.is_final()).then(|| (planned - progress.scored_tokens) as f64 / rate)
    });
    Ok(Job {
        id: row.id,
        name: row.name,
        state,
        model: row.model,
        datasets: sources,
        method: json(row.method)?,
        dtype: parse(row.dtype)?,
        tags: json(row.tags)?,
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
        progress,
        error: row.error.map(json).transpose()?,
    })
}
