//! Results, assembled from the plan and the finished datasets.

use assay_api::{DatasetResult, Dtype, GroupResult, JobId, JobResult, JobState, Method, OneOrMany};
use assay_scoring::{DatasetStatistics, GroupStatistics};
use sqlx::{FromRow, PgConnection};

use crate::audit::agreed_elsewhere;
use crate::end::loss_warning;
use crate::rows::{count, json, parse};
use crate::{PlanFacts, ProjectId, Store, StoreError, performance, precision};

#[derive(FromRow)]
struct JobRow {
    state: String,
    method: serde_json::Value,
    dtype: String,
    numerics: String,
    plan: Option<serde_json::Value>,
    device_kinds: Vec<String>,
    split_shards: i64,
    /// Tokens that two workers agree on, over those of the job's own shards that count.
    audited: f64,
    /// A baseline was wanted, and is not there.
    baseline_missing: bool,
    /// One was asked for, and the job had nothing to compute.
    baseline_reused: bool,
    /// The share of the shards that was to be audited.
    audit: f64,
    /// Shards to be audited, and those of them that nobody was there for.
    to_audit: i64,
    waived: i64,
}

impl JobRow {
    async fn read(
        tx: &mut PgConnection,
        id: JobId,
        project: Option<ProjectId>,
    ) -> Result<Option<Self>, StoreError> {
        Ok(sqlx::query_as(
            "select j.state::text as state, j.method, j.dtype, j.numerics, j.plan,
                    coalesce(j.baseline_state = 'done' and j.baseline_result is null, false)
                        as baseline_missing,
                    j.baseline = 'measure' and j.state = 'succeeded' and j.baseline_state is null
                        as baseline_reused,
                    j.audit,
                    array(
                        select b.device_kind from attempts b
                        where b.job_id = j.id and b.outcome = 'committed'
                          and b.kind in ('primary', 'copy')
                        union
                        select d.device_kind from datasets d
                        where d.job_id = j.id and d.reused_from is not null
                        order by device_kind
                    ) as device_kinds,
                    s.split_shards, s.audited, s.to_audit, s.waived
             from jobs j, (
                 select count(*) filter (where split_depth > 0) as split_shards,
                        coalesce((sum(scored_tokens) filter (where audit = 'agreed'))::double precision
                            / sum(scored_tokens) filter (where state = 'done'), 0) as audited,
                        count(audit) as to_audit,
                        count(*) filter (where audit = 'waived') as waived
                 from shards where job_id = $1
             ) s
             where j.id = $1 and ($2::integer is null or j.project_id = $2)",
        )
        .bind(id)
        .bind(project)
        .fetch_optional(tx)
        .await?)
    }

    /// Of what was asked for and could not be had.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.waived > 0 {
            warnings.push(format!(
                "{} of the {} shards to be audited (a share of {}) were not audited: no other \
                 worker was there that could compute them again",
                self.waived, self.to_audit, self.audit
            ));
        }
        if self.baseline_missing {
            warnings.push(
                "the baseline was not measured: no device was free for it, or the one that \
                 measured it was lost"
                    .to_owned(),
            );
        }
        if self.baseline_reused {
            warnings
                .push("the baseline was not measured: all numbers are of earlier jobs".to_owned());
        }
        warnings
    }
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
        // One moment for all of it: the job's state and the sums of its attempts agree.
        let mut tx = self.pool.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only")
            .execute(&mut *tx)
            .await?;
        let job = JobRow::read(&mut tx, id, self.project()).await?;
        let Some(job) = job else {
            tx.rollback().await?;
            return Ok(None);
        };
        let rows: Vec<DatasetRow> = sqlx::query_as(
            "select name, method, method_index, reused_from, warnings, digest, scored_tokens, seconds,
                    statistics
             from datasets where job_id = $1 order by index",
        )
        .bind(id)
        .fetch_all(&mut *tx)
        .await?;
        let losses: Vec<(i32, i32)> = sqlx::query_as(
            "select index, losses from shards where job_id = $1 and losses > 0 order by index",
        )
        .bind(id)
        .fetch_all(&mut *tx)
        .await?;
        let removed = removed_workers(&mut tx, id).await?;
        let performance = performance::read(&mut tx, id).await?;
        let dtype: Dtype = parse(job.dtype.clone())?;
        let numerics = parse(job.numerics.clone())?;
        let precision = precision::read(&mut tx, id, numerics, dtype).await?;
        tx.commit().await?;

        let of_job = job.warnings();
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
        warnings.extend(removed);
        warnings.extend(of_job);
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
        let state: JobState = parse(job.state)?;
        Ok(Some(JobResult {
            job_id: id,
            complete: state == JobState::Succeeded,
            model: plan.as_ref().map(|p| p.model.clone()),
            tokenizer: plan.as_ref().map(|p| p.tokenizer.clone()),
            method,
            dtype,
            precision,
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
            audited: job.audited,
            performance,
            warnings,
        }))
    }
}

/// Warnings of workers that were taken out of service and had a part in the job: while it ran; or
/// later, if something counts of them that nobody else agreed on.
async fn removed_workers(tx: &mut PgConnection, job: JobId) -> Result<Vec<String>, StoreError> {
    let removed: Vec<(String, String, i64)> = sqlx::query_as(concat!(
        "select w.name, w.out_of_service_reason, w.counted from (
             select w.name, w.out_of_service_reason, w.out_of_service_at,
                    coalesce(j.finished_at, now()) as until,
                    count(*) filter (where s.fence = a.fence and not coalesce(",
        agreed_elsewhere!(),
        ", false)) as counted
             from workers w
             join attempts a on a.worker_id = w.id
             join jobs j on j.id = a.job_id
             left join shards s on s.job_id = a.job_id and s.index = a.shard
             where w.out_of_service_at is not null and a.job_id = $1
             group by w.id, j.id
             order by w.id
         ) w
         where w.out_of_service_at <= w.until or w.counted > 0",
    ))
    .bind(job)
    .fetch_all(tx)
    .await?;
    let removed = removed.into_iter();
    Ok(removed
        .map(|(name, reason, counted)| match counted {
            0 => format!("the worker {name} was taken out of service: {reason}"),
            _ => format!(
                "the worker {name}, of which {counted} shards count here, was taken out of \
                 service: {reason}"
            ),
        })
        .collect())
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
