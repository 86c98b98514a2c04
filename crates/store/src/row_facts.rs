//! What two rows must share for a paired comparison, beyond what their results show.

use assay_api::JobId;
use assay_scoring::{ClusterLayout, DatasetStatistics, ExactSum};
use sqlx::FromRow;

use crate::project::is_seen;
use crate::rows::{json, token};
use crate::{Store, StoreError};

/// Facts of a row, a dataset under a method.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFacts {
    /// Digest of the tokens, and of which of them count; none until the job is planned.
    pub tokens_digest: Option<String>,
    /// The token before each document, or before the joined text.
    pub prefix: Option<u32>,
    /// Whether every token of the text counts, so that bytes divide into the sum.
    pub text_measures: bool,
    /// What the clusters are; none until the job is planned.
    pub clusters: Option<ClusterLayout>,
    /// Sum and count of each span, where one document's spans are the clusters. Empty of rows that
    /// version 0.1 has finished.
    pub spans: Vec<(ExactSum, u64)>,
}

#[derive(FromRow)]
struct Columns {
    tokens_digest: Option<String>,
    prefix: Option<i64>,
    text_measures: bool,
    clusters: Option<serde_json::Value>,
    statistics: Option<serde_json::Value>,
}

impl Store {
    /// The facts of each row of a job, in the order of its results. Empty if there is no such job.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn row_facts(&self, job: JobId) -> Result<Vec<RowFacts>, StoreError> {
        let rows: Vec<Columns> = sqlx::query_as(concat!(
            "select tokens_digest, prefix, coalesce(text_measures, false) as text_measures,
                    clusters, statistics
             from datasets where job_id = $1 and ",
            is_seen!("$1", "$2"),
            " order by index",
        ))
        .bind(job)
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(Columns::into_facts).collect()
    }
}

impl Columns {
    fn into_facts(self) -> Result<RowFacts, StoreError> {
        let statistics: Option<DatasetStatistics> = self.statistics.map(json).transpose()?;
        Ok(RowFacts {
            tokens_digest: self.tokens_digest,
            prefix: self.prefix.map(token).transpose()?,
            text_measures: self.text_measures,
            clusters: self.clusters.map(json).transpose()?,
            spans: statistics.map(|s| s.spans).unwrap_or_default(),
        })
    }
}
