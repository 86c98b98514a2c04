//! What the shards of a job share.

use assay_api::{DatasetRef, Dtype, JobId, Method, Numerics};
use assay_scoring::ClusterLayout;
use sqlx::FromRow;

use crate::rows::{json, parse, token};
use crate::{PlanFacts, Store, StoreError};

/// What every shard of a job needs besides its windows.
#[derive(Debug)]
pub struct RunContext {
    /// The dtype.
    pub dtype: Dtype,
    /// Whether a device may compute in another one.
    pub numerics: Numerics,
    /// Whether the number of every counted token is kept.
    pub token_output: bool,
    /// Names what the speed of a device depends on besides its kind: [`PlanFacts::rate_key`]. None
    /// in jobs that an older version planned.
    pub rate_key: Option<String>,
    /// What the planner found and fixed.
    pub plan: PlanFacts,
    /// Each dataset under each method, in the order of the rows.
    pub datasets: Vec<RunDataset>,
}

/// A planned row.
#[derive(Debug)]
pub struct RunDataset {
    /// Where the dataset is.
    pub source: DatasetRef,
    /// The method.
    pub method: Method,
    /// The token before each document, or before the joined text.
    pub prefix: Option<u32>,
    /// Digest of its tokens as planned.
    pub tokens_digest: String,
    /// Where a token's NLL is added.
    pub clusters: ClusterLayout,
}

#[derive(FromRow)]
struct JobRow {
    dtype: String,
    numerics: String,
    token_output: bool,
    rate_key: Option<String>,
    plan: Option<serde_json::Value>,
}

#[derive(FromRow)]
struct RunRow {
    source: serde_json::Value,
    method: serde_json::Value,
    prefix: Option<i64>,
    tokens_digest: String,
    clusters: serde_json::Value,
}

impl Store {
    /// What the shards of a planned job share. None if there is no such job or no plan yet.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn run_context(&self, job: JobId) -> Result<Option<RunContext>, StoreError> {
        let row: Option<JobRow> = sqlx::query_as(
            "select dtype, numerics, token_output, rate_key, plan from jobs where id = $1",
        )
        .bind(job)
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let Some(plan) = row.plan else {
            return Ok(None);
        };
        let rows: Vec<RunRow> = sqlx::query_as(
            "select source, method, prefix, tokens_digest, clusters from datasets
             where job_id = $1 order by index",
        )
        .bind(job)
        .fetch_all(&self.pool)
        .await?;
        let datasets = rows
            .into_iter()
            .map(|row| {
                Ok(RunDataset {
                    source: json(row.source)?,
                    method: json(row.method)?,
                    prefix: row.prefix.map(token).transpose()?,
                    tokens_digest: row.tokens_digest,
                    clusters: json(row.clusters)?,
                })
            })
            .collect::<Result<_, StoreError>>()?;
        Ok(Some(RunContext {
            dtype: parse(row.dtype)?,
            numerics: parse(row.numerics)?,
            token_output: row.token_output,
            rate_key: row.rate_key,
            plan: json(plan)?,
            datasets,
        }))
    }
}
