//! Plans: what a planner found and fixed, written in one transaction.

use assay_api::{JobId, ModelFacts, TokenizerFacts, WorkerId};
use assay_scoring::{DatasetPlan, DocumentFacts, PlanConstants, ShardPlan};
use serde::{Deserialize, Serialize};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, int, storable, to_json};
use crate::{CHUNK, Store, StoreError, finish, reuse};

/// What the planner found and fixed for the whole job, kept in `jobs.plan`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanFacts {
    /// The checkpoint. A worker whose copy has another digest refuses the shard.
    pub model: ModelFacts,
    /// The tokenizer.
    pub tokenizer: TokenizerFacts,
    /// The constants that shaped micro-batches and shards.
    pub constants: PlanConstants,
    /// Version of the program that planned.
    pub version: String,
    /// Version of the numbers.
    pub numerics_version: u32,
    /// What a reader of any of the numbers should know.
    pub warnings: Vec<String>,
}

/// A plan to store.
pub struct NewPlan {
    /// For the whole job.
    pub facts: PlanFacts,
    /// Each dataset under each method, in the order of the rows.
    pub datasets: Vec<NewDatasetPlan>,
}

/// The plan of one row.
pub struct NewDatasetPlan {
    /// Digest of the data.
    pub digest: String,
    /// Digest of the tokens, and of which of them count.
    pub tokens_digest: String,
    /// The token before each document, or before the joined text.
    pub prefix: Option<u32>,
    /// Whether every token of the text counts, so that words and bytes divide into the sum.
    pub text_measures: bool,
    /// Names everything that decides the numbers but the device kind: weights, tokenizer, data,
    /// method, dtype, constants, `numerics_version`. Rows with equal keys have equal numbers.
    pub content_key: String,
    /// Names of groups, and the group of each document as an index into them.
    pub groups: Option<(Vec<String>, Vec<u32>)>,
    /// What a reader of the row's numbers should know.
    pub warnings: Vec<String>,
    /// Every document, in order.
    pub documents: Vec<DocumentFacts>,
    /// Windows, shards, clusters.
    pub plan: DatasetPlan,
}

/// What a planned row holds, as the database takes it.
pub(crate) struct PlannedRow<'a> {
    pub(crate) new: &'a NewDatasetPlan,
    pub(crate) clusters: serde_json::Value,
    pub(crate) planned_tokens: i64,
    pub(crate) prefix: Option<i64>,
    pub(crate) group_names: Option<serde_json::Value>,
    warnings: serde_json::Value,
}

impl<'a> PlannedRow<'a> {
    fn of(new: &'a NewDatasetPlan) -> Result<Self, StoreError> {
        if let Some((names, groups)) = &new.groups
            && (groups.len() != new.documents.len()
                || groups.iter().any(|group| *group as usize >= names.len()))
        {
            return Err(StoreError::Unexpected(
                "a plan that does not give each document one of its groups".to_owned(),
            ));
        }
        // Both may hold what a file holds.
        let texts =
            |texts: &[String]| to_json(&texts.iter().map(|t| storable(t)).collect::<Vec<_>>());
        let group_names = new.groups.as_ref().map(|(names, _)| texts(names));
        Ok(Self {
            new,
            clusters: to_json(&new.plan.clusters)?,
            planned_tokens: bigint(new.plan.scored_tokens)?,
            prefix: new.prefix.map(i64::from),
            group_names: group_names.transpose()?,
            warnings: texts(&new.warnings)?,
        })
    }
}

/// The planning attempt, locked.
#[derive(FromRow)]
struct Planning {
    outcome: Option<String>,
    device_kind: String,
}

/// The job, its plan stored.
#[derive(FromRow)]
struct Planned {
    rows: i32,
    may_reuse: bool,
}

impl Store {
    /// Stores the plan and sets the job running, in one transaction. Rows that an earlier job has
    /// scored are finished by its numbers, if the job allows it; with all of them the job has
    /// succeeded. False if the attempt has ended, so that nothing was stored.
    ///
    /// # Errors
    /// The database does not answer, or the plan does not have a row for each of the job's.
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
        let attempt: Option<Planning> = sqlx::query_as(
            "select outcome::text as outcome, device_kind from attempts
             where fence = $1 and worker_id = $2 and kind = 'plan' for no key update",
        )
        .bind(fence)
        .bind(worker)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(attempt) = attempt else {
            return Ok(false);
        };
        if let Some(outcome) = attempt.outcome {
            // The answer to an earlier call was lost on its way.
            return Ok(outcome == "committed");
        }
        sqlx::query(
            "update attempts set outcome = 'committed', finished_at = now() where fence = $1",
        )
        .bind(fence)
        .execute(&mut *tx)
        .await?;
        // The numbers of single tokens are kept by no earlier job in a form to be taken.
        let planned: Option<Planned> = sqlx::query_as(
            "update jobs set state = 'running', plan = $2
             where id = $1 and state = 'planning'
             returning datasets_left as rows, reuse and not token_output as may_reuse",
        )
        .bind(job)
        .bind(to_json(&plan.facts)?)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(planned) = planned else {
            return Ok(false);
        };
        if int(plan.datasets.len())? != planned.rows {
            return Err(StoreError::Unexpected(format!(
                "a plan of {} rows for a job of {}",
                plan.datasets.len(),
                planned.rows
            )));
        }
        let kind = planned.may_reuse.then_some(&*attempt.device_kind);
        insert_rows(&mut tx, job, kind, &plan.datasets).await?;
        crate::listen::wake_workers(&mut tx).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Stores the rows; as finished those that an earlier job has scored on this kind of device, if
/// one is given.
async fn insert_rows(
    tx: &mut PgConnection,
    job: JobId,
    reuse_kind: Option<&str>,
    datasets: &[NewDatasetPlan],
) -> Result<(), StoreError> {
    let (mut shards, mut reused) = (0, 0);
    for (index, dataset) in datasets.iter().enumerate() {
        let index = int(index)?;
        let row = PlannedRow::of(dataset)?;
        insert_documents(tx, job, index, dataset).await?;
        let source = match reuse_kind {
            Some(kind) => reuse::find(tx, job, index, kind, &row).await?,
            None => None,
        };
        update_row(tx, job, index, &row, source.as_ref()).await?;
        if let Some(source) = source {
            reuse::copy_sums(tx, job, index, &source).await?;
            reused += 1;
        } else {
            insert_shards(tx, job, index, shards, &dataset.plan.shards).await?;
            shards += dataset.plan.shards.len();
        }
    }
    if reused > 0 {
        finish::count_rows(tx, job, reused).await?;
    }
    Ok(())
}

/// Fixes what the plan says of a row, and finishes it if another job's row is its source.
async fn update_row(
    tx: &mut PgConnection,
    job: JobId,
    index: i32,
    row: &PlannedRow<'_>,
    source: Option<&reuse::Source>,
) -> Result<(), StoreError> {
    let shards = source.map_or(row.new.plan.shards.len(), |_| 0);
    sqlx::query(
        "update datasets
         set digest = $3, tokens_digest = $4, clusters = $5, planned_tokens = $6, prefix = $7,
             text_measures = $8, content_key = $9, group_names = $10, warnings = $11,
             shards = $12, shards_left = $12, reused_from = $13,
             scored_tokens = case when $13 is null then 0 else $6 end,
             finished_at = case when $13 is not null then now() end,
             (statistics, device_kind) = (
                 select s.statistics, s.device_kind from datasets s
                 where s.job_id = $13 and s.index = $14
             )
         where job_id = $1 and index = $2",
    )
    .bind(job)
    .bind(index)
    .bind(&row.new.digest)
    .bind(&row.new.tokens_digest)
    .bind(&row.clusters)
    .bind(row.planned_tokens)
    .bind(row.prefix)
    .bind(row.new.text_measures)
    .bind(&row.new.content_key)
    .bind(&row.group_names)
    .bind(&row.warnings)
    .bind(int(shards)?)
    .bind(source.map(|source| source.job))
    .bind(source.map(|source| source.row))
    .execute(tx)
    .await?;
    Ok(())
}

async fn insert_documents(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
    plan: &NewDatasetPlan,
) -> Result<(), StoreError> {
    let mut groups = plan.groups.as_ref().map(|(_, groups)| groups.chunks(CHUNK));
    for (chunk, documents) in plan.documents.chunks(CHUNK).enumerate() {
        let groups = groups.as_mut().and_then(Iterator::next);
        let groups = groups.map(|groups| groups.iter().map(|g| int(*g)).collect());
        let groups: Option<Vec<i32>> = groups.transpose()?;
        let column = |of: fn(&DocumentFacts) -> u64| {
            documents
                .iter()
                .map(|d| bigint(of(d)))
                .collect::<Result<Vec<_>, _>>()
        };
        sqlx::query(
            "insert into document_chunks (job_id, dataset, chunk, tokens, bytes, words, groups)
             values ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(job)
        .bind(dataset)
        .bind(int(chunk)?)
        .bind(column(|d| d.tokens)?)
        .bind(column(|d| d.bytes)?)
        .bind(column(|d| d.words)?)
        .bind(groups)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

async fn insert_shards(
    tx: &mut PgConnection,
    job: JobId,
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
