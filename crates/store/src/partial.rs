//! The numbers of what is counted so far, from the sums of the counted shards.
//!
//! Read in one snapshot, without a lock: commits do not wait for it. It costs a read of all counted
//! sums of the job, a row at a time, and memory for the clusters of one row (32 bytes each): for a
//! million documents some 20 MB are read. Callers bound how often they ask.

use assay_api::{JobId, JobState, PartialDataset, PartialNumbers, PartialPoint, PartialResult};
use assay_scoring::{ClusterLayout, DatasetStatistics, ExactSum, SoFar};
use chrono::{DateTime, Utc};
use futures_util::TryStreamExt as _;
use sqlx::{FromRow, PgConnection};

use crate::rows::{count, json, parse};
use crate::{Store, StoreError};

/// Points of a row.
const POINTS: u64 = 50;
/// Points of a job: with many rows each has fewer.
const ALL_POINTS: u64 = 2_000;

#[derive(FromRow)]
struct Row {
    index: i32,
    name: String,
    method: serde_json::Value,
    clusters: Option<serde_json::Value>,
    planned_tokens: Option<i64>,
    shards: i32,
    shards_left: i32,
    /// Of a row that was taken from another job, which has no shards.
    statistics: Option<serde_json::Value>,
}

/// A counted shard.
#[derive(FromRow)]
struct Sums {
    committed_at: DateTime<Utc>,
    clusters: Vec<i32>,
    units: Vec<i64>,
    scored: Vec<i64>,
}

impl Store {
    /// What is counted so far of a job. None if there is no such job.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn partial(&self, id: JobId) -> Result<Option<PartialResult>, StoreError> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only")
            .execute(&mut *tx)
            .await?;
        let job: Option<(String, DateTime<Utc>)> = sqlx::query_as(
            "select state::text, now() from jobs
                 where id = $1 and ($2::integer is null or project_id = $2)",
        )
        .bind(id)
        .bind(self.project())
        .fetch_optional(&mut *tx)
        .await?;
        let Some((state, at)) = job else {
            tx.rollback().await?;
            return Ok(None);
        };
        let rows: Vec<Row> = sqlx::query_as(
            "select index, name, method, clusters, planned_tokens, shards, shards_left,
                    case when reused_from is not null then statistics end as statistics
             from datasets where job_id = $1 order by index",
        )
        .bind(id)
        .fetch_all(&mut *tx)
        .await?;
        let points = (ALL_POINTS / (rows.len() as u64).max(1)).clamp(1, POINTS);
        let mut datasets = Vec::with_capacity(rows.len());
        for row in rows {
            datasets.push(read_row(&mut tx, id, row, points).await?);
        }
        tx.commit().await?;
        let state: JobState = parse(state)?;
        Ok(Some(PartialResult {
            job_id: id,
            state,
            complete: state == JobState::Succeeded,
            at,
            datasets,
        }))
    }
}

async fn read_row(
    tx: &mut PgConnection,
    job: JobId,
    row: Row,
    points: u64,
) -> Result<PartialDataset, StoreError> {
    let shards_done = count(row.shards - row.shards_left)?;
    let (now, points) = if let Some(statistics) = row.statistics {
        (of_statistics(&json(statistics)?), Vec::new())
    } else {
        let layout: Option<ClusterLayout> = row.clusters.map(json).transpose()?;
        let clusters = layout.map_or(0, |layout| layout.len() as usize);
        let every = shards_done.div_ceil(points).max(1);
        add_up(tx, (job, row.index), clusters, shards_done, every).await?
    };
    Ok(PartialDataset {
        name: row.name,
        method: json(row.method)?,
        shards_done,
        shards: count(row.shards)?,
        planned_tokens: row.planned_tokens.map(count).transpose()?,
        nll: now.nll.nats(),
        nll_exact: now.nll.to_string(),
        clusters: now.clusters,
        numbers: numbers(&now),
        points,
    })
}

/// The numbers after all counted shards of a row, and those after each `every` of them and the last,
/// in the order in which they were counted.
async fn add_up(
    tx: &mut PgConnection,
    (job, row): (JobId, i32),
    clusters: usize,
    shards: u64,
    every: u64,
) -> Result<(SoFar, Vec<PartialPoint>), StoreError> {
    let mut counted = sqlx::query_as::<_, Sums>(
        "select committed_at, clusters, units, scored from shards
         where job_id = $1 and dataset = $2 and state = 'done' order by committed_at, index",
    )
    .bind(job)
    .bind(row)
    .fetch(tx);
    let mut sums = vec![(ExactSum::default(), 0); clusters];
    let mut points = Vec::new();
    let mut now = SoFar::of(&sums);
    let mut n = 0;
    while let Some(shard) = counted.try_next().await? {
        let parts = shard.clusters.iter().zip(&shard.units).zip(&shard.scored);
        for ((&cluster, &units), &scored) in parts {
            let sum = usize::try_from(cluster).ok().and_then(|c| sums.get_mut(c));
            let sum = sum.ok_or_else(|| StoreError::Unexpected(format!("cluster {cluster}")))?;
            sum.0 += ExactSum::from(units);
            sum.1 += count(scored)?;
        }
        n += 1;
        if n % every == 0 || n == shards {
            now = SoFar::of(&sums);
            points.push(PartialPoint {
                at: shard.committed_at,
                numbers: numbers(&now),
            });
        }
    }
    Ok((now, points))
}

fn of_statistics(statistics: &DatasetStatistics) -> SoFar {
    let scored = statistics.scored_tokens;
    SoFar {
        nll: statistics.nll,
        scored_tokens: scored,
        mean_nll: (scored > 0).then(|| statistics.nll.nats() / scored as f64),
        perplexity: statistics.perplexity,
        standard_error: statistics.standard_error,
        confidence_95: statistics.confidence_95,
        clusters: statistics.clusters,
    }
}

fn numbers(so_far: &SoFar) -> PartialNumbers {
    PartialNumbers {
        scored_tokens: so_far.scored_tokens,
        mean_nll: so_far.mean_nll,
        perplexity: so_far.perplexity,
        standard_error: so_far.standard_error,
        confidence_95: so_far.confidence_95,
    }
}
