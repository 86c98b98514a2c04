//! The end of a dataset: its shards' sums are added, document by document, and its statistics
//! taken; and the end of the job with its last dataset.

use assay_api::JobId;
use assay_scoring::{ClusterLayout, DocumentFacts, ExactSum, document_sums, statistics};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, count, int, json, to_json};
use crate::{CHUNK, StoreError};

#[derive(FromRow)]
struct ChunkRow {
    tokens: Vec<i64>,
    bytes: Vec<i64>,
    words: Vec<i64>,
}

/// Finishes a dataset of which the caller has just counted the last shard, under the job's lock.
pub(crate) async fn finish_dataset(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
) -> Result<(), StoreError> {
    let layout: serde_json::Value =
        sqlx::query_scalar("select clusters from datasets where job_id = $1 and index = $2")
            .bind(job)
            .bind(dataset)
            .fetch_one(&mut *tx)
            .await?;
    let layout: ClusterLayout = json(layout)?;
    let documents = documents(tx, job, dataset).await?;
    let clusters = clusters(tx, job, dataset, layout.len() as usize).await?;
    write_sums(tx, job, dataset, &document_sums(&layout, &clusters)).await?;

    // The table's constraints refuse this unless the counted tokens are the planned ones.
    sqlx::query(
        "update datasets set statistics = $3, finished_at = now() where job_id = $1 and index = $2",
    )
    .bind(job)
    .bind(dataset)
    .bind(to_json(&statistics(&documents, &layout, &clusters))?)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "update jobs
         set datasets_left = datasets_left - 1,
             state = case when datasets_left = 1 then 'succeeded' else state end,
             finished_at = case when datasets_left = 1 then now() end
         where id = $1",
    )
    .bind(job)
    .execute(&mut *tx)
    .await?;
    Ok(())
}

async fn documents(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
) -> Result<Vec<DocumentFacts>, StoreError> {
    let chunks: Vec<ChunkRow> = sqlx::query_as(
        "select tokens, bytes, words from document_chunks
         where job_id = $1 and dataset = $2 order by chunk",
    )
    .bind(job)
    .bind(dataset)
    .fetch_all(tx)
    .await?;
    let mut documents = Vec::new();
    for chunk in chunks {
        for ((tokens, bytes), words) in chunk.tokens.iter().zip(&chunk.bytes).zip(&chunk.words) {
            documents.push(DocumentFacts {
                tokens: count(*tokens)?,
                bytes: count(*bytes)?,
                words: count(*words)?,
            });
        }
    }
    Ok(documents)
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
