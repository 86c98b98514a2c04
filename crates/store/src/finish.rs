//! The end of a row: its shards' sums are added, document by document, and its statistics taken;
//! and the end of the job with its last row.

use assay_api::JobId;
use assay_scoring::{ClusterLayout, Detail, DocumentFacts, ExactSum, document_sums, statistics};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, count, index_of, int, json, to_json};
use crate::{CHUNK, StoreError};

#[derive(FromRow)]
struct ChunkRow {
    tokens: Vec<i64>,
    bytes: Vec<i64>,
    words: Vec<i64>,
    groups: Option<Vec<i32>>,
}

/// What the plan fixed about the statistics.
#[derive(FromRow)]
struct Planned {
    clusters: serde_json::Value,
    text_measures: bool,
    group_names: Option<serde_json::Value>,
}

/// Finishes the rows of which every shard is counted, once nothing of the job is to be audited any
/// more: until then each of its shards may be taken back. The caller holds the job's lock.
pub(crate) async fn finish_ready(tx: &mut PgConnection, job: JobId) -> Result<(), StoreError> {
    let rows: Vec<i32> = sqlx::query_scalar(
        "select d.index from datasets d join jobs j on j.id = d.job_id
         where d.job_id = $1 and j.state = 'running' and j.audits_left = 0
           and d.shards > 0 and d.shards_left = 0 and d.finished_at is null
         order by d.index",
    )
    .bind(job)
    .fetch_all(&mut *tx)
    .await?;
    for row in rows {
        finish_dataset(tx, job, row).await?;
    }
    Ok(())
}

async fn finish_dataset(tx: &mut PgConnection, job: JobId, dataset: i32) -> Result<(), StoreError> {
    let planned: Planned = sqlx::query_as(
        "select clusters, text_measures, group_names from datasets
         where job_id = $1 and index = $2",
    )
    .bind(job)
    .bind(dataset)
    .fetch_one(&mut *tx)
    .await?;
    let layout: ClusterLayout = json(planned.clusters)?;
    let group_names: Option<Vec<String>> = planned.group_names.map(json).transpose()?;
    let (documents, groups) = documents(tx, job, dataset).await?;
    let clusters = clusters(tx, job, dataset, layout.len() as usize).await?;
    write_sums(tx, job, dataset, &document_sums(&layout, &clusters)).await?;

    let detail = Detail {
        text_measures: planned.text_measures,
        groups: group_names.as_deref().map(|names| (names, &*groups)),
    };
    // The table's constraints refuse this unless the counted tokens are the planned ones. Numbers
    // of several device kinds, of another dtype than the job's, or of a shard that was split, may
    // have other bits elsewhere: they keep no device kind, so that no other job takes them.
    sqlx::query(
        "update datasets
         set statistics = $3, finished_at = clock_timestamp(), device_kind = (
                 select min(a.device_kind)
                 from shards s join attempts a on a.fence = s.fence
                 where s.job_id = $1 and s.dataset = $2
                 having count(distinct a.device_kind) = 1 and max(s.split_depth) = 0
                    and count(a.dtype) = 0
             )
         where job_id = $1 and index = $2",
    )
    .bind(job)
    .bind(dataset)
    .bind(to_json(&statistics(
        &documents, &layout, &clusters, &detail,
    ))?)
    .execute(&mut *tx)
    .await?;
    count_rows(tx, job, 1).await
}

/// Counts rows that have ended; with the last of them the job has succeeded. The caller holds the
/// job's lock.
pub(crate) async fn count_rows(
    tx: &mut PgConnection,
    job: JobId,
    rows: i32,
) -> Result<(), StoreError> {
    sqlx::query(
        "update jobs
         set datasets_left = datasets_left - $2,
             state = case when datasets_left = $2 then 'succeeded' else state end,
             finished_at = case when datasets_left = $2 then clock_timestamp() end
         where id = $1",
    )
    .bind(job)
    .bind(rows)
    .execute(tx)
    .await?;
    Ok(())
}

/// The facts of each document, and the group of each if there are groups.
async fn documents(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
) -> Result<(Vec<DocumentFacts>, Vec<u32>), StoreError> {
    let chunks: Vec<ChunkRow> = sqlx::query_as(
        "select tokens, bytes, words, groups from document_chunks
         where job_id = $1 and dataset = $2 order by chunk",
    )
    .bind(job)
    .bind(dataset)
    .fetch_all(tx)
    .await?;
    let (mut documents, mut groups) = (Vec::new(), Vec::new());
    for chunk in chunks {
        for ((tokens, bytes), words) in chunk.tokens.iter().zip(&chunk.bytes).zip(&chunk.words) {
            documents.push(DocumentFacts {
                tokens: count(*tokens)?,
                bytes: count(*bytes)?,
                words: count(*words)?,
            });
        }
        for group in chunk.groups.into_iter().flatten() {
            groups.push(index_of(group)?);
        }
    }
    Ok((documents, groups))
}

/// The exact sum and count of each cluster over all shards of the dataset.
async fn clusters(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
    clusters: usize,
) -> Result<Vec<(ExactSum, u64)>, StoreError> {
    let shards: Vec<(Vec<i32>, Vec<i64>, Vec<i64>)> = sqlx::query_as(
        "select clusters, units, scored from shards
         where job_id = $1 and dataset = $2 and state = 'done' order by index",
    )
    .bind(job)
    .bind(dataset)
    .fetch_all(tx)
    .await?;
    let mut sums = vec![(ExactSum::default(), 0); clusters];
    for (clusters, units, scored) in shards {
        for ((cluster, units), scored) in clusters.into_iter().zip(units).zip(scored) {
            let sum = usize::try_from(cluster).ok().and_then(|c| sums.get_mut(c));
            let sum = sum.ok_or_else(|| StoreError::Unexpected(format!("cluster {cluster}")))?;
            sum.0 += ExactSum::from(units);
            sum.1 += count(scored)?;
        }
    }
    Ok(sums)
}

async fn write_sums(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
    documents: &[(ExactSum, u64)],
) -> Result<(), StoreError> {
    for (chunk, documents) in documents.chunks(CHUNK).enumerate() {
        sqlx::query(
            "update document_chunks set scored = $4, nll = $5::text[]::numeric[]
             where job_id = $1 and dataset = $2 and chunk = $3",
        )
        .bind(job)
        .bind(dataset)
        .bind(int(chunk)?)
        .bind(
            documents
                .iter()
                .map(|(_, n)| bigint(*n))
                .collect::<Result<Vec<_>, _>>()?,
        )
        .bind(
            documents
                .iter()
                .map(|(sum, _)| sum.to_string())
                .collect::<Vec<_>>(),
        )
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}
