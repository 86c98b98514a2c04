//! Lists: shards, workers.

use assay_api::{AttemptRow, JobId, ShardRow, WorkerError, WorkerId, WorkerRow, WorkerState};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::project::is_seen;
use crate::rows::{bigint, count, index_of, int, json, parse};
use crate::{Store, StoreError};

#[derive(FromRow)]
struct ShardColumns {
    index: i32,
    dataset: String,
    method: serde_json::Value,
    state: String,
    windows: i64,
    scored_tokens: i64,
    flops: f64,
    spans_digest: String,
    split_depth: i32,
    seconds: Option<f64>,
    audit: Option<String>,
}

#[derive(FromRow)]
struct AttemptColumns {
    shard: i32,
    fence: i64,
    kind: String,
    worker: String,
    device: String,
    device_kind: String,
    dtype: Option<String>,
    solo: bool,
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
    late_commits: i64,
    out_of_service: Option<String>,
    error_code: Option<String>,
    error: Option<String>,
    error_at: Option<DateTime<Utc>>,
}

impl Store {
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
        let shards: Vec<ShardColumns> = sqlx::query_as(concat!(
            "select s.index, d.name as dataset, d.method, s.state::text as state, s.windows,
                    s.scored_tokens, s.flops, s.spans_digest, s.split_depth, s.seconds,
                    s.audit::text as audit
             from shards s join datasets d on d.job_id = s.job_id and d.index = s.dataset
             where s.job_id = $1 and s.index >= $2 and ",
            is_seen!("$1", "$4"),
            " order by s.index limit $3",
        ))
        .bind(job)
        .bind(int(from)?)
        .bind(bigint(limit.into())?)
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        let indices: Vec<i32> = shards.iter().map(|shard| shard.index).collect();
        let attempts: Vec<AttemptColumns> = sqlx::query_as(
            "select a.shard, a.fence, a.kind::text as kind, w.name as worker, a.device,
                    a.device_kind, a.dtype, a.solo,
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
                index: index_of(shard.index)?,
                dataset: shard.dataset,
                method: json(shard.method)?,
                state: parse(shard.state)?,
                windows: count(shard.windows)?,
                scored_tokens: count(shard.scored_tokens)?,
                flops: shard.flops,
                spans_digest: shard.spans_digest,
                split_depth: index_of(shard.split_depth)?,
                seconds: shard.seconds,
                audit: shard.audit.map(parse).transpose()?,
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
                         when w.lease_until <= now() then 'lost'
                         when w.out_of_service_at is not null then 'out_of_service'
                         else 'live' end as state,
                    (select count(*) from attempts a
                     where a.worker_id = w.id and a.outcome is null) as running,
                    (select count(*) from attempts a
                     where a.worker_id = w.id and a.late) as late_commits,
                    w.out_of_service_reason as out_of_service, w.error_code, w.error, w.error_at
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
                    late_commits: count(row.late_commits)?,
                    out_of_service: row.out_of_service,
                    last_error: match (row.error_code, row.error, row.error_at) {
                        (Some(code), Some(detail), Some(at)) => Some(WorkerError {
                            code: parse(code)?,
                            detail,
                            at,
                        }),
                        _ => None,
                    },
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
        device: row.device,
        device_kind: row.device_kind,
        dtype: row.dtype.map(parse).transpose()?,
        solo: row.solo,
        started_at: row.started_at,
        finished_at: row.finished_at,
        outcome: row.outcome.map(parse).transpose()?,
        late: row.late,
        error_code: row.error_code.map(parse).transpose()?,
        error: row.error,
    })
}
