//! Jobs: creation, reading, cancellation.

use std::collections::HashMap;

use assay_api::{
    DatasetProgress, DatasetRef, Deadlines, Download, Dtype, Gate, Job, JobId, JobRequest,
    JobState, Method, ModelRef, OneOrMany, Progress, Waiting, WaitingCode, Webhook,
};
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use crate::quota::Exceeded;
use crate::rows::{bigint, count, index_of, int, json, parse, to_json};
use crate::{NewWebhook, Store, StoreError, deliveries, quota, uploads};

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
    /// The method or methods, defaults filled in; no two alike.
    pub methods: &'a OneOrMany<Method>,
    /// The datasets of the request, with their names and the digests of uploads filled in.
    pub datasets: &'a [DatasetRef],
    /// The dtype, `auto` resolved.
    pub dtype: Dtype,
    /// What the job is held against, its baseline resolved.
    pub gate: Option<&'a Gate>,
    /// What is told when it has ended.
    pub webhook: Option<NewWebhook<'a>>,
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
    /// The upload of this name was deleted, or stands for other bytes by now.
    UploadChanged(String),
    /// The project has as much as it may.
    Exceeded(Exceeded),
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
    /// Only jobs in one of these states; in any, if there are none.
    pub states: Vec<JobState>,
    /// Only jobs with this text in their name, model, adapter, id, or in a tag as `key:value`,
    /// whatever the case.
    pub text: Option<String>,
    /// Only jobs with this tag and value.
    pub tag: Option<(String, String)>,
}

#[derive(FromRow)]
struct JobRow {
    id: JobId,
    name: Option<String>,
    state: String,
    model: String,
    adapter: Option<String>,
    method: serde_json::Value,
    dtype: String,
    numerics: String,
    tags: serde_json::Value,
    token_output: bool,
    priority: i32,
    audit: f64,
    baseline: String,
    gate: Option<serde_json::Value>,
    webhook: Option<String>,
    queue_seconds: Option<i32>,
    run_seconds: Option<i32>,
    waiting: Option<String>,
    error: Option<serde_json::Value>,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    download_bytes: Option<i64>,
    download_total_bytes: Option<i64>,
    /// Seconds from the first claim of a shard to the end, or to now.
    running_seconds: Option<f64>,
}

#[derive(FromRow)]
struct DatasetRow {
    job_id: JobId,
    name: String,
    method: serde_json::Value,
    /// Of the first row of each dataset, without the documents.
    source: Option<serde_json::Value>,
    reused: bool,
    planned_tokens: Option<i64>,
    scored_tokens: i64,
    shards: i32,
    shards_left: i32,
}

/// The columns of [`JobRow`]. A macro, because sqlx takes statements as literals only.
macro_rules! select_job {
    () => {
        "select j.id, j.name, j.state::text as state, j.model, j.adapter, j.method, j.dtype, j.numerics, j.tags,
                j.token_output, j.priority, j.audit, j.baseline, j.gate, j.error, j.created_at, j.started_at,
                j.finished_at, j.download_bytes, j.download_total_bytes,
                (select w.url from webhooks w where w.job_id = j.id) as webhook,
                j.queue_seconds, j.run_seconds,
                case when j.finished_at is null then (
                    select case
                        when count(*) = 0 then 'no_worker'
                        when count(*) filter (where w.out_of_service_at is null) = 0
                        then 'no_worker_in_service'
                    end
                    from workers w where w.stopped_at is null and w.lease_until > now()
                ) end as waiting,
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
        let deadlines = request.deadlines.unwrap_or_default();
        let rows = new.datasets.len() * new.methods.as_slice().len();
        let project = self.own_project();
        let mut tx = self.pool.begin().await?;
        let exceeded = quota::before_job(&mut tx, project).await?;
        if let Some(exceeded) = exceeded {
            tx.rollback().await?;
            // Whoever repeats the request that took the last place gets its answer.
            let made = match new.idempotency_key {
                Some(key) => self.job_of_key(key, new.body).await?,
                None => None,
            };
            return Ok(made.unwrap_or(Creation::Exceeded(exceeded)));
        }
        // A concurrent insert of the same key makes this wait for its commit, then do nothing.
        let inserted = sqlx::query(
            "insert into jobs
                 (id, name, model, method, dtype, tags, body, idempotency_key, datasets_left,
                  token_output, reuse, priority, audit, baseline, numerics, adapter, gate,
                  queue_seconds, run_seconds, project_id, project_priority)
             select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                    $19, id, priority
             from projects where id = $20
             on conflict on constraint jobs_idempotency_key_unique do nothing",
        )
        .bind(new.id)
        .bind(&request.name)
        .bind(&request.model.path)
        .bind(to_json(new.methods)?)
        .bind(new.dtype.as_str())
        .bind(to_json(&request.tags)?)
        .bind(new.body)
        .bind(new.idempotency_key)
        .bind(int(rows)?)
        .bind(request.token_output)
        .bind(request.reuse)
        .bind(request.priority)
        .bind(request.audit)
        .bind(request.baseline.as_str())
        .bind(request.numerics.as_str())
        .bind(&request.model.adapter)
        .bind(new.gate.map(to_json).transpose()?)
        .bind(deadlines.queue_seconds.map(int).transpose()?)
        .bind(deadlines.run_seconds.map(int).transpose()?)
        .bind(project)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if inserted == 0 {
            tx.rollback().await?;
            let made = match new.idempotency_key {
                Some(key) => self.job_of_key(key, new.body).await?,
                None => None,
            };
            return made.ok_or_else(|| StoreError::Unexpected("no job was inserted".to_owned()));
        }
        for dataset in new.datasets {
            if let (Some(name), Some(digest)) = (&dataset.upload, &dataset.upload_digest)
                && !uploads::hold(&mut tx, project, name, digest).await?
            {
                tx.rollback().await?;
                return Ok(Creation::UploadChanged(name.clone()));
            }
        }
        insert_rows(&mut tx, new).await?;
        if let Some(webhook) = &new.webhook {
            deliveries::insert_webhook(&mut tx, new.id, webhook).await?;
        }
        self.note(&mut tx, "create_job", &new.id.to_string(), 201)
            .await?;
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
        let row: Option<(JobId, bool)> = sqlx::query_as(
            "select id, body = $2 from jobs where idempotency_key = $1 and project_id = $3",
        )
        .bind(key)
        .bind(body)
        .bind(self.own_project())
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
        let rows = sqlx::query_as(concat!(
            select_job!(),
            " where j.id = $1 and ($2::integer is null or j.project_id = $2)"
        ))
        .bind(id)
        .bind(self.project())
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
    /// They are read from the newest on until there are enough; those in few states by an index. A
    /// text that hardly any job has makes it read them all, 3 us each.
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
        // One text, whose cast the planner sees through, as it does not through that of an array: of
        // few jobs in these states it reads no others.
        let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        let states = (!states.is_empty()).then(|| format!("{{{}}}", states.join(",")));
        let rows = sqlx::query_as(concat!(
            select_job!(),
            " where ($1::uuid is null or j.id < $1)
                and ($2::text is null or j.state = any($2::text::job_state[]))
                and ($3::jsonb is null or j.tags @> $3)
                and ($6::integer is null or j.project_id = $6)
                and ($5::text is null
                     or strpos(lower(concat_ws(chr(10), j.name, j.model, j.adapter, j.id)),
                               lower($5)) > 0
                     or exists (
                         select from jsonb_each_text(j.tags) as tag
                         where strpos(lower(tag.key || ':' || tag.value), lower($5)) > 0
                     ))
              order by j.id desc
              limit $4"
        ))
        .bind(before)
        .bind(states)
        .bind(tag)
        .bind(bigint(limit.into())?)
        .bind(&filter.text)
        .bind(self.project())
        // Planned anew for what is asked: a plan for all filters and projects would read all jobs.
        .persistent(false)
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
            tx.rollback().await?;
            return Ok(Cancellation::AlreadyEnded(self.existing_job(id).await?));
        }
        sqlx::query(
            "update jobs set state = 'cancelled', finished_at = clock_timestamp() where id = $1",
        )
        .bind(id)
        .execute(&mut *tx)
        .await?;
        crate::end::end_attempts(&mut tx, id).await?;
        self.note(&mut tx, "cancel_job", &id.to_string(), 200)
            .await?;
        tx.commit().await?;
        Ok(Cancellation::Cancelled(self.existing_job(id).await?))
    }

    /// The row of a dataset by its name, under the method of this index. None if the job has none.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn row(
        &self,
        job: JobId,
        dataset: &str,
        method: u32,
    ) -> Result<Option<u32>, StoreError> {
        let index: Option<i32> = sqlx::query_scalar(
            "select index from datasets where job_id = $1 and name = $2 and method_index = $3",
        )
        .bind(job)
        .bind(dataset)
        // No job has as many methods as do not fit.
        .bind(i32::try_from(method).unwrap_or(i32::MAX))
        .fetch_optional(&self.pool)
        .await?;
        index.map(index_of).transpose()
    }

    async fn with_datasets(&self, jobs: Vec<JobRow>) -> Result<Vec<Job>, StoreError> {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        let rows: Vec<DatasetRow> = sqlx::query_as(
            "select job_id, name, method,
                    case when method_index = 0 then shown_source end as source,
                    reused_from is not null as reused, planned_tokens, scored_tokens, shards,
                    shards_left
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

/// Inserts a row for each dataset under each method.
async fn insert_rows(tx: &mut PgConnection, new: &NewJob<'_>) -> Result<(), StoreError> {
    let names: Vec<&str> = new.datasets.iter().map(DatasetRef::name).collect();
    let sources = new.datasets.iter().map(to_json);
    let methods = new.methods.as_slice().iter().map(to_json);
    sqlx::query(
        "insert into datasets
             (job_id, index, name, source, method, dataset_index, method_index)
         select $1, (d.n - 1) * cardinality($4) + m.n - 1, d.name, d.source, m.method,
                d.n - 1, m.n - 1
         from unnest($2::text[], $3::jsonb[]) with ordinality as d(name, source, n)
         cross join unnest($4::jsonb[]) with ordinality as m(method, n)",
    )
    .bind(new.id)
    .bind(names)
    .bind(sources.collect::<Result<Vec<_>, _>>()?)
    .bind(methods.collect::<Result<Vec<_>, _>>()?)
    .execute(tx)
    .await?;
    Ok(())
}

fn deadlines(queue: Option<i32>, run: Option<i32>) -> Result<Option<Deadlines>, StoreError> {
    let deadlines = Deadlines {
        queue_seconds: queue.map(index_of).transpose()?,
        run_seconds: run.map(index_of).transpose()?,
    };
    Ok(Some(deadlines).filter(|deadlines| *deadlines != Deadlines::default()))
}

fn waiting(code: String) -> Result<Waiting, StoreError> {
    Ok(parse::<WaitingCode>(code)?.into())
}

fn to_job(row: JobRow, datasets: Vec<DatasetRow>) -> Result<Job, StoreError> {
    let mut progress = Progress::default();
    let mut sources = Vec::with_capacity(datasets.len());
    let mut planned = Some(0);
    let mut reused = 0;
    for dataset in datasets {
        let scored_tokens = count(dataset.scored_tokens)?;
        let planned_tokens = dataset.planned_tokens.map(count).transpose()?;
        progress.scored_tokens += scored_tokens;
        planned = planned.zip(planned_tokens).map(|(sum, n)| sum + n);
        if dataset.reused {
            reused += scored_tokens;
        }
        progress.datasets.push(DatasetProgress {
            name: dataset.name,
            method: json(dataset.method)?,
            scored_tokens,
            planned_tokens,
            shards_done: count(dataset.shards - dataset.shards_left)?,
            shards: count(dataset.shards)?,
        });
        if let Some(source) = dataset.source {
            sources.push(json(source)?);
        }
    }
    progress.planned_tokens = planned;
    // What was taken from other jobs took no time.
    let own_tokens = progress.scored_tokens - reused;
    let rate = row
        .running_seconds
        .filter(|seconds| *seconds > 0.0 && own_tokens > 0)
        .map(|seconds| own_tokens as f64 / seconds);
    progress.tokens_per_second = rate;
    let state: JobState = parse(row.state)?;
    // What a planning fetched that has ended is history.
    if state == JobState::Planning
        && let (Some(bytes), Some(total)) = (row.download_bytes, row.download_total_bytes)
    {
        progress.download = Some(Download {
            bytes: count(bytes)?,
            total_bytes: count(total)?,
        });
    }
    progress.eta_seconds = rate.zip(planned).and_then(|(rate, planned)| {
        (!state.is_final()).then(|| (planned - progress.scored_tokens) as f64 / rate)
    });
    Ok(Job {
        id: row.id,
        name: row.name,
        state,
        model: ModelRef {
            path: row.model,
            adapter: row.adapter,
        },
        datasets: sources,
        method: json(row.method)?,
        dtype: parse(row.dtype)?,
        numerics: parse(row.numerics)?,
        tags: json(row.tags)?,
        token_output: row.token_output,
        priority: row.priority,
        audit: row.audit,
        baseline: parse(row.baseline)?,
        gate: row.gate.map(json).transpose()?,
        deadlines: deadlines(row.queue_seconds, row.run_seconds)?,
        waiting: row.waiting.map(waiting).transpose()?,
        webhook: row.webhook.map(|url| Webhook { url, secret: None }),
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
        progress,
        error: row.error.map(json).transpose()?,
    })
}
