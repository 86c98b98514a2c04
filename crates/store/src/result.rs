//! Results, assembled from the plan and the finished datasets.

use assay_api::{
    DatasetResult, GroupResult, JobId, JobResult, JobState, Method, OneOrMany, Performance,
};
use assay_scoring::{DatasetStatistics, GroupStatistics};
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
    device_kinds: Vec<String>,
    split_shards: i64,
}

#[derive(FromRow)]
struct DatasetRow {
    name: String,
    method: serde_json::Value,
    method_index: i32,
    reused_from: Option<JobId>,
    warnings: serde_json::Value,
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
                    array(
                        select b.device_kind from attempts b
                        where b.job_id = j.id and b.outcome = 'committed' and b.kind <> 'plan'
                        union
                        select d.device_kind from datasets d
                        where d.job_id = j.id and d.reused_from is not null
                        order by device_kind
                    ) as device_kinds,
                    (select count(*) from shards where job_id = j.id and split_depth > 0)
                        as split_shards
             from jobs j left join attempts a on a.job_id = j.id
             where j.id = $1
             group by j.id",
        )
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        let Some(job) = job else { return Ok(None) };
        let rows: Vec<DatasetRow> = sqlx::query_as(
            "select name, method, method_index, reused_from, warnings, digest, scored_tokens, seconds,
                    statistics
             from datasets where job_id = $1 order by index",
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
        let method: OneOrMany<Method> = json(job.method)?;
        let several = method.as_slice().len() > 1;
        let mut datasets = Vec::with_capacity(rows.len());
        for row in rows {
            let method = several.then_some(row.method_index);
            let (dataset, of_row) = to_dataset(row)?;
            let name = match method {
                None => dataset.name.clone(),
                Some(index) => {
                    let convention = dataset.method.convention.as_str();
                    format!("{}, method {index} ({convention})", dataset.name)
                }
            };
            warnings.extend(of_row.into_iter().map(|w| format!("{name}: {w}")));
            datasets.push(dataset);
        }
        // What was taken from other jobs took no time, and no attempt computed it.
        let own = datasets.iter().filter(|d| d.reused_from.is_none());
        let counted_tokens: u64 = own.map(|d| d.scored_tokens).sum();
        let seconds = job.seconds.unwrap_or(0.0);
        let state: JobState = parse(job.state)?;
        Ok(Some(JobResult {
            job_id: id,
            complete: state == JobState::Succeeded,
            model: plan.as_ref().map(|p| p.model.clone()),
            tokenizer: plan.as_ref().map(|p| p.tokenizer.clone()),
            method,
            dtype: parse(job.dtype)?,
            device_kinds: job.device_kinds,
            version: plan.as_ref().map_or_else(
                || env!("CARGO_PKG_VERSION").to_owned(),
                |p| p.version.clone(),
            ),
            numerics_version: plan
                .as_ref()
                .map_or(assay_scoring::NUMERICS_VERSION, |p| p.numerics_version),
            datasets,
            split_shards: count(job.split_shards)?,
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

/// The numbers of a row, and the warnings about them.
fn to_dataset(row: DatasetRow) -> Result<(DatasetResult, Vec<String>), StoreError> {
    let statistics: Option<DatasetStatistics> = row.statistics.map(json).transpose()?;
    let mut warnings: Vec<String> = json(row.warnings)?;
    let s = statistics.as_ref();
    let scored_tokens = count(row.scored_tokens)?;
    let result = DatasetResult {
        name: row.name,
        method: json(row.method)?,
        reused_from: row.reused_from,
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
        groups: s.map_or_else(Vec::new, |s| s.groups.iter().map(to_group).collect()),
    };
    warnings.extend(statistics.into_iter().flat_map(|s| s.warnings));
    Ok((result, warnings))
}

fn to_group(group: &GroupStatistics) -> GroupResult {
    GroupResult {
        name: group.name.clone(),
        documents: group.documents,
        scored_tokens: group.scored_tokens,
        nll: group.nll.nats(),
        nll_exact: group.nll.to_string(),
        perplexity: group.perplexity,
        macro_perplexity: group.macro_perplexity,
        standard_error: group.standard_error,
        confidence_95: group.confidence_95,
    }
}

fn rate(tokens: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0 && tokens > 0).then(|| tokens as f64 / seconds)
}
