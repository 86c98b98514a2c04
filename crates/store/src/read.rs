//! Lists: documents, shards, workers.

use assay_api::{AttemptRow, DocumentRow, JobId, ShardRow, WorkerId, WorkerRow, WorkerState};
use assay_scoring::ExactSum;
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::rows::{bigint, count, int, json, parse};
use crate::{CHUNK, Store, StoreError};

#[derive(FromRow)]
struct ChunkRow {
    chunk: i32,
    tokens: Vec<i64>,
    bytes: Vec<i64>,
    words: Vec<i64>,
    scored: Vec<i64>,
    nll: Vec<String>,
}

#[derive(FromRow)]
struct ShardColumns {
    index: i32,
    dataset: String,
    state: String,
    windows: i64,
    scored_tokens: i64,
    flops: f64,
    spans_digest: String,
    seconds: Option<f64>,
}

#[derive(FromRow)]
struct AttemptColumns {
    shard: i32,
    fence: i64,
    kind: String,
    worker: String,
    device_kind: String,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    outcome: Option<String>,
    late: bool,
    error_code: Option<String>,
    error: Option<String>,
}

#[derive(FromRow)]
struct WorkerColumns {
    id: WorkerId,
    name: String,
    state: String,
    version: String,
    devices: serde_json::Value,
    started_at: DateTime<Utc>,
    last_seen_at: DateTime<Utc>,
    running: i64,
}

impl Store {
    /// The documents `from ..` of a dataset that has ended, `limit` at most. Empty before.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn documents(
        &self,
        job: JobId,
        dataset: u32,
        from: u64,
        limit: u32,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        let size = CHUNK as u64;
        let end = from.saturating_add(limit.into());
        let chunks: Vec<ChunkRow> = sqlx::query_as(
            "select chunk, tokens, bytes, words, scored, nll::text[] as nll from document_chunks
             where job_id = $1 and dataset = $2 and chunk between $3 and $4 and scored is not null
             order by chunk",
        )
        .bind(job)
        .bind(int(dataset)?)
        .bind(i32::try_from(from / size).unwrap_or(i32::MAX))
        .bind(i32::try_from(end / size).unwrap_or(i32::MAX))
        .fetch_all(&self.pool)
        .await?;
        let mut rows = Vec::new();
        for chunk in chunks {
            let first = count(chunk.chunk)? * size;
            for (offset, nll) in chunk.nll.iter().enumerate() {
                let index = first + offset as u64;
                if index < from || index >= end {
                    continue;
                }
                let sum: ExactSum = nll
                    .parse()
                    .map_err(|_| StoreError::Unexpected(format!("sum {nll:?}")))?;
                rows.push(DocumentRow {
                    index,
                    tokens: count(chunk.tokens[offset])?,
                    scored_tokens: count(chunk.scored[offset])?,
                    bytes: count(chunk.bytes[offset])?,
                    words: count(chunk.words[offset])?,
                    nll: sum.nats(),
                    nll_exact: sum.to_string(),
                });
            }
        }
        Ok(rows)
    }

    /// The shards `from ..` of a job with their attempts, `limit` at most.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn shards(
        &self,
        job: JobId,
        from: u32,
        limit: u32,
    ) -> Result<Vec<ShardRow>, StoreError> {
        let shards: Vec<ShardColumns> = sqlx::query_as(
            "select s.index, d.name as dataset, s.state::text as state, s.windows,
                    s.scored_tokens, s.flops, s.spans_digest, s.seconds
             from shards s join datasets d on d.job_id = s.job_id and d.index = s.dataset
             where s.job_id = $1 and s.index >= $2
             order by s.index limit $3",
        )
        .bind(job)
        .bind(int(from)?)
        .bind(bigint(limit.into())?)
        .fetch_all(&self.pool)
        .await?;
        let indices: Vec<i32> = shards.iter().map(|shard| shard.index).collect();
        let attempts: Vec<AttemptColumns> = sqlx::query_as(
            "select a.shard, a.fence, a.kind::text as kind, w.name as worker, a.device_kind,
                    a.started_at, a.finished_at, a.outcome::text as outcome, a.late,
                    a.error_code, a.error
             from attempts a join workers w on w.id = a.worker_id
             where a.job_id = $1 and a.shard = any($2)
             order by a.shard, a.fence",
        )
        .bind(job)
        .bind(&indices)
        .fetch_all(&self.pool)
        .await?;
        let mut attempts = attempts.into_iter().peekable();
        let mut rows = Vec::with_capacity(shards.len());
        for shard in shards {
            let mut own = Vec::new();
            while let Some(attempt) = attempts.next_if(|a| a.shard == shard.index) {
                own.push(to_attempt(attempt)?);
            }
            rows.push(ShardRow {
                index: shard.index.try_into().unwrap_or(0),
                dataset: shard.dataset,
                state: parse(shard.state)?,
                windows: count(shard.windows)?,
                scored_tokens: count(shard.scored_tokens)?,
                flops: shard.flops,
                spans_digest: shard.spans_digest,
                seconds: shard.seconds,
                attempts: own,
            });
        }
        Ok(rows)
    }

    /// Workers, the latest registered first, those registered before `before`.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn workers(
        &self,
        before: Option<WorkerId>,
        limit: u32,
    ) -> Result<Vec<WorkerRow>, StoreError> {
        let rows: Vec<WorkerColumns> = sqlx::query_as(
            "select w.id, w.name, w.version, w.devices, w.started_at, w.last_seen_at,
                    case when w.stopped_at is not null then 'stopped'
                         when w.lease_until > now() then 'live'
                         else 'lost' end as state,
                    (select count(*) from attempts a
                     where a.worker_id = w.id and a.outcome is null) as running
             from workers w
             where $1::uuid is null or w.id < $1
             order by w.id desc limit $2",
        )
        .bind(before)
        .bind(bigint(limit.into())?)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(WorkerRow {
                    id: row.id,
                    name: row.name,
                    state: parse::<WorkerState>(row.state)?,
                    version: row.version,
                    devices: json(row.devices)?,
                    started_at: row.started_at,
                    last_seen_at: row.last_seen_at,
                    running: count(row.running)?,
                })
            })
            .collect()
    }
}

fn to_attempt(row: AttemptColumns) -> Result<AttemptRow, StoreError> {
    Ok(AttemptRow {
        fence: row.fence,
        kind: parse(row.kind)?,
        worker: row.worker,
        device_kind: row.device_kind,
        started_at: row.started_at,
        finished_at: row.finished_at,
        outcome: row.outcome.map(parse).transpose()?,
        late: row.late,
        error_code: row.error_code.map(parse).transpose()?,
        error: row.error,
    })
}
