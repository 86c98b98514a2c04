//! Results, assembled from the plan and the finished datasets.

use assay_api::{DatasetResult, JobId, JobResult, JobState, Performance};
use assay_scoring::DatasetStatistics;
use sqlx::FromRow;

use crate::end::loss_warning;
use crate::rows::{count, json, parse};
use crate::{PlanFacts, Store, StoreError};

#[derive(FromRow)]
struct JobRow {
    state: String,
    method: serde_json::Value,
    dtype: String,
    plan: Option<serde_json::Value>,
    /// Seconds from the first claim of a shard to the last commit.
    seconds: Option<f64>,
    computed_tokens: Option<i64>,
    device_kinds: Option<Vec<String>>,
}

#[derive(FromRow)]
struct DatasetRow {
    name: String,
    digest: Option<String>,
    scored_tokens: i64,
    seconds: f64,
    statistics: Option<serde_json::Value>,
}

impl Store {
    /// The results of a job, as far as they are known.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn result(&self, id: JobId) -> Result<Option<JobResult>, StoreError> {
        // One statement sees one moment: the job's state and the sums of its attempts agree.
        let job: Option<JobRow> = sqlx::query_as(
            "select j.state::text as state, j.method, j.dtype, j.plan,
                    extract(epoch from (select max(committed_at) from shards where job_id = j.id)
                        - min(a.started_at) filter (where a.kind <> 'plan'))::double precision
                        as seconds,
                    sum(a.computed_tokens)::bigint as computed_tokens,
                    array_agg(distinct a.device_kind)
                        filter (where a.outcome = 'committed' and a.kind <> 'plan')
                        as device_kinds
             from jobs j left join attempts a on a.job_id = j.id
             where j.id = $1
             group by j.id",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        let Some(job) = job else { return Ok(None) };
        let rows: Vec<DatasetRow> = sqlx::query_as(
            "select name, digest, scored_tokens, seconds, statistics from datasets
             where job_id = $1 order by index",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?;
        let losses: Vec<(i32, i32)> = sqlx::query_as(
            "select index, losses from shards where job_id = $1 and losses > 0 order by index",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await?;

        let plan: Option<PlanFacts> = job.plan.map(json).transpose()?;
        let mut warnings = plan
            .as_ref()
            .map(|p| p.warnings.clone())
            .unwrap_or_default();
        warnings.extend(
            losses
                .into_iter()
                .filter_map(|(shard, n)| loss_warning(shard, n)),
        );
        let mut datasets = Vec::with_capacity(rows.len());
        for row in rows {
            let (dataset, of_dataset) = to_dataset(row)?;
            warnings.extend(
                of_dataset
                    .into_iter()
                    .map(|w| format!("{}: {w}", dataset.name)),
            );
            datasets.push(dataset);
        }
        let counted_tokens: u64 = datasets.iter().map(|d| d.scored_tokens).sum();
        let seconds = job.seconds.unwrap_or(0.0);
        let state: JobState = parse(job.state)?;
        Ok(Some(JobResult {
            job_id: id,
            complete: state == JobState::Succeeded,
            model: plan.as_ref().map(|p| p.model.clone()),
            tokenizer: plan.as_ref().map(|p| p.tokenizer.clone()),
            method: json(job.method)?,
            dtype: parse(job.dtype)?,
            device_kinds: job.device_kinds.unwrap_or_default(),
            version: plan.as_ref().map_or_else(
                || env!("CARGO_PKG_VERSION").to_owned(),
                |p| p.version.clone(),
            ),
            numerics_version: plan
                .as_ref()
                .map_or(assay_scoring::NUMERICS_VERSION, |p| p.numerics_version),
            datasets,
            performance: Performance {
                tokens_per_second: rate(counted_tokens, seconds),
                seconds,
                counted_tokens,
                computed_tokens: count(job.computed_tokens.unwrap_or(0))?,
            },
            warnings,
        }))
    }
}

/// The numbers of a dataset, and the warnings about them.
fn to_dataset(row: DatasetRow) -> Result<(DatasetResult, Vec<String>), StoreError> {
    let statistics: Option<DatasetStatistics> = row.statistics.map(json).transpose()?;
    let s = statistics.as_ref();
    let scored_tokens = count(row.scored_tokens)?;
    let result = DatasetResult {
        name: row.name,
        digest: row.digest,
        documents: s.map(|s| s.documents),
        unscored_documents: s.map(|s| s.unscored_documents),
        bytes: s.map(|s| s.bytes),
        words: s.map(|s| s.words),
        tokens: s.map(|s| s.tokens),
        scored_tokens,
        nll: s.map(|s| s.nll.nats()),
        nll_exact: s.map(|s| s.nll.to_string()),
        perplexity: s.and_then(|s| s.perplexity),
        word_perplexity: s.and_then(|s| s.word_perplexity),
        byte_perplexity: s.and_then(|s| s.byte_perplexity),
        bits_per_byte: s.and_then(|s| s.bits_per_byte),
        macro_perplexity: s.and_then(|s| s.macro_perplexity),
        standard_error: s.and_then(|s| s.standard_error),
        confidence_95: s.and_then(|s| s.confidence_95),
        overflow: s.is_some_and(|s| s.overflow),
        seconds: row.seconds,
        tokens_per_second: rate(scored_tokens, row.seconds),
    };
    Ok((result, statistics.map(|s| s.warnings).unwrap_or_default()))
}

fn rate(tokens: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0 && tokens > 0).then(|| tokens as f64 / seconds)
}
