//! Plans: what a planner found and fixed, written in one transaction.

use assay_api::{ModelFacts, TokenizerFacts, WorkerId};
use assay_scoring::{DatasetPlan, DocumentFacts, PlanConstants, ShardPlan};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::rows::{bigint, int, to_json};
use crate::{CHUNK, Store, StoreError};

/// What the planner found and fixed for the whole job, kept in `jobs.plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFacts {
    /// The checkpoint. A worker whose copy has another digest refuses the shard.
    pub model: ModelFacts,
    /// The tokenizer.
    pub tokenizer: TokenizerFacts,
    /// The token before each document.
    pub prefix: u32,
    /// The constants that shaped micro-batches and shards.
    pub constants: PlanConstants,
    /// Version of the program that planned.
    pub version: String,
    /// Version of the numbers.
    pub numerics_version: u32,
    /// What a reader of the numbers should know.
    pub warnings: Vec<String>,
}

/// A plan to store.
pub struct NewPlan {
    /// For the whole job.
    pub facts: PlanFacts,
    /// By dataset, in the order of the request.
    pub datasets: Vec<NewDatasetPlan>,
}

/// The plan of one dataset.
pub struct NewDatasetPlan {
    /// Digest of the file.
    pub digest: String,
    /// Digest of the tokens.
    pub tokens_digest: String,
    /// Every document, in order.
    pub documents: Vec<DocumentFacts>,
    /// Windows, shards, clusters.
    pub plan: DatasetPlan,
}

impl Store {
    /// Stores the plan and sets the job running, in one transaction. False if the attempt has
    /// ended, so that nothing was stored.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn commit_plan(
        &self,
        worker: WorkerId,
        fence: i64,
        plan: &NewPlan,
    ) -> Result<bool, StoreError> {
        let Some(job) = self.job_of(fence).await? else {
            return Ok(false);
        };
        let Some((mut tx, _)) = self.lock_job(job).await? else {
            return Ok(false);
        };
        let outcome: Option<Option<String>> = sqlx::query_scalar(
            "select outcome::text from attempts
             where fence = $1 and worker_id = $2 and kind = 'plan' for no key update",
        )
        .bind(fence)
        .bind(worker)
        .fetch_optional(&mut *tx)
        .await?;
        match outcome {
            Some(None) => {}
            // The answer to an earlier call was lost on its way.
            Some(Some(outcome)) => return Ok(outcome == "committed"),
            None => return Ok(false),
        }
        sqlx::query(
            "update attempts set outcome = 'committed', finished_at = now() where fence = $1",
        )
        .bind(fence)
        .execute(&mut *tx)
        .await?;
        let updated = sqlx::query(
            "update jobs set state = 'running', plan = $2 where id = $1 and state = 'planning'",
        )
        .bind(job)
        .bind(to_json(&plan.facts)?)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if updated == 0 {
            return Ok(false);
        }
        let mut first = 0;
        for (index, dataset) in plan.datasets.iter().enumerate() {
            let index = int(index)?;
            insert_dataset(&mut tx, job, index, dataset).await?;
            insert_documents(&mut tx, job, index, &dataset.documents).await?;
            insert_shards(&mut tx, job, index, first, &dataset.plan.shards).await?;
            first += dataset.plan.shards.len();
        }
        crate::listen::wake_workers(&mut tx).await?;
        tx.commit().await?;
        Ok(true)
    }
}

async fn insert_dataset(
    tx: &mut PgConnection,
    job: assay_api::JobId,
    index: i32,
    dataset: &NewDatasetPlan,
) -> Result<(), StoreError> {
    sqlx::query(
        "update datasets
         set digest = $3, tokens_digest = $4, clusters = $5, planned_tokens = $6,
             shards = $7, shards_left = $7
         where job_id = $1 and index = $2",
    )
    .bind(job)
    .bind(index)
    .bind(&dataset.digest)
    .bind(&dataset.tokens_digest)
    .bind(to_json(&dataset.plan.clusters)?)
    .bind(bigint(dataset.plan.scored_tokens)?)
    .bind(int(dataset.plan.shards.len())?)
    .execute(tx)
    .await?;
    Ok(())
}

async fn insert_documents(
    tx: &mut PgConnection,
    job: assay_api::JobId,
    dataset: i32,
    documents: &[DocumentFacts],
) -> Result<(), StoreError> {
    for (chunk, documents) in documents.chunks(CHUNK).enumerate() {
        let column = |of: fn(&DocumentFacts) -> u64| {
            documents
                .iter()
                .map(|d| bigint(of(d)))
                .collect::<Result<Vec<_>, _>>()
        };
        sqlx::query(
            "insert into document_chunks (job_id, dataset, chunk, tokens, bytes, words)
             values ($1, $2, $3, $4, $5, $6)",
        )
        .bind(job)
        .bind(dataset)
        .bind(int(chunk)?)
        .bind(column(|d| d.tokens)?)
        .bind(column(|d| d.bytes)?)
        .bind(column(|d| d.words)?)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

async fn insert_shards(
    tx: &mut PgConnection,
    job: assay_api::JobId,
    dataset: i32,
    first: usize,
    shards: &[ShardPlan],
) -> Result<(), StoreError> {
    for (offset, shard) in shards.iter().enumerate() {
        let windows: usize = shard.micro_batches.iter().map(|m| m.0.len()).sum();
        sqlx::query(
            "insert into shards
                 (job_id, index, dataset, micro_batches, windows, scored_tokens, flops, spans_digest)
             values ($1, $2, $3, $4, $5, $6, $7, $8)",
        )
        .bind(job)
        .bind(int(first + offset)?)
        .bind(dataset)
        .bind(to_json(&shard.micro_batches)?)
        .bind(bigint(windows as u64)?)
        .bind(bigint(shard.scored_tokens)?)
        .bind(shard.flops)
        .bind(&shard.spans_digest)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}
