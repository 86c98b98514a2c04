//! Plans: what a planner found and fixed, written in one transaction.

use assay_api::{BaselineRequest, JobId, ModelFacts, TokenizerFacts, WorkerId};
use assay_scoring::{DatasetPlan, DocumentFacts, PlanConstants, ShardPlan};
use serde::{Deserialize, Serialize};
use sqlx::{FromRow, PgConnection};

use crate::rates::Pool;
use crate::rows::{bigint, int, parse, storable, to_json};
use crate::{CHUNK, Store, StoreError, baseline, end, finish, quota, reuse};

/// Shards that one statement inserts at most.
const BATCH: usize = 256;

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
    /// Names what the speed of a device depends on besides its kind: the shape of the model, the
    /// dtype, the longest window. Jobs of equal keys share what is known of devices' rates.
    #[serde(default)]
    pub rate_key: Option<String>,
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
    out_of_service: bool,
}

/// The job, its plan stored.
#[derive(FromRow)]
struct Planned {
    rows: i32,
    may_reuse: bool,
    /// The share of the shards to audit.
    audit: f64,
    baseline: String,
}

/// The shards that a plan has of its own.
#[derive(Default)]
struct OwnShards {
    count: usize,
    to_audit: i32,
    flops: f64,
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
            "select a.outcome::text as outcome, a.device_kind,
                    w.out_of_service_at is not null as out_of_service
             from attempts a join workers w on w.id = a.worker_id
             where a.fence = $1 and a.worker_id = $2 and a.kind = 'plan' for no key update of a",
        )
        .bind(fence)
        .bind(worker)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(attempt) = attempt else {
            tx.rollback().await?;
            return Ok(false);
        };
        if let Some(outcome) = attempt.outcome {
            // The answer to an earlier call was lost on its way.
            tx.rollback().await?;
            return Ok(outcome == "committed");
        }
        sqlx::query(
            "update attempts
             set outcome = case when $2 then 'released' else 'committed' end::attempt_outcome,
                 finished_at = clock_timestamp()
             where fence = $1",
        )
        .bind(fence)
        .bind(attempt.out_of_service)
        .execute(&mut *tx)
        .await?;
        if attempt.out_of_service {
            end::put_back(&mut tx, job, &[None]).await?;
            tx.commit().await?;
            return Ok(false);
        }
        // The numbers of single tokens are kept by no earlier job in a form to be taken.
        let planned: Option<Planned> = sqlx::query_as(
            "update jobs set state = 'running', plan = $2, rate_key = $3
             where id = $1 and state = 'planning'
             returning datasets_left as rows, reuse and not token_output as may_reuse, audit,
                       baseline",
        )
        .bind(job)
        .bind(to_json(&plan.facts)?)
        .bind(&plan.facts.rate_key)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(planned) = planned else {
            tx.rollback().await?;
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
        let shards = insert_rows(&mut tx, job, kind, planned.audit, &plan.datasets).await?;
        if let Some(exceeded) = quota::charge(&mut tx, job).await? {
            tx.rollback().await?;
            self.fail_attempt(worker, fence, &exceeded.failure())
                .await?;
            return Ok(false);
        }
        let key = plan.facts.rate_key.as_deref();
        let measured = shards.count > 0
            && match parse(planned.baseline)? {
                BaselineRequest::Skip => false,
                BaselineRequest::Measure => true,
                BaselineRequest::Auto => {
                    let pool = Pool::read(&mut *tx, key, &attempt.device_kind, None).await?;
                    baseline::is_worth_it(shards.flops, &pool)?
                }
            };
        sqlx::query(
            "update jobs
             set audits_left = $2, baseline_state = case when $3 then 'wanted'::baseline_state end
             where id = $1",
        )
        .bind(job)
        .bind(shards.to_audit)
        .bind(measured)
        .execute(&mut *tx)
        .await?;
        crate::listen::wake_workers(&mut tx).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// Stores the rows; as finished those that an earlier job has scored on this kind of device, if
/// one is given. Answers the shards of the others.
async fn insert_rows(
    tx: &mut PgConnection,
    job: JobId,
    reuse_kind: Option<&str>,
    audit: f64,
    datasets: &[NewDatasetPlan],
) -> Result<OwnShards, StoreError> {
    let (mut own, mut reused) = (OwnShards::default(), 0);
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
            insert_shards(tx, job, index, audit, &mut own, &dataset.plan.shards).await?;
        }
    }
    if reused > 0 {
        finish::count_rows(tx, job, reused).await?;
    }
    Ok(own)
}

/// Fixes what the plan says of a row, and finishes it if another job's row is its source.
async fn update_row(
    tx: &mut PgConnection,
    job: JobId,
    index: i32,
    row: &PlannedRow<'_>,
    source: Option<&reuse::Source>,
) -> Result<(), StoreError> {
    let shards = if source.is_none() {
        &*row.new.plan.shards
    } else {
        &[]
    };
    sqlx::query(
        "update datasets
         set digest = $3, tokens_digest = $4, clusters = $5, planned_tokens = $6, prefix = $7,
             text_measures = $8, content_key = $9, group_names = $10, warnings = $11,
             shards = $12, shards_left = $12, flops_left = $15, reused_from = $13,
             scored_tokens = case when $13 is null then 0 else $6 end,
             finished_at = case when $13 is not null then clock_timestamp() end,
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
    .bind(int(shards.len())?)
    .bind(source.map(|source| source.job))
    .bind(source.map(|source| source.row))
    .bind(shards.iter().map(|shard| shard.flops).sum::<f64>())
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

/// Inserts the shards of a row, and marks those to audit, evenly spread over the job's.
async fn insert_shards(
    tx: &mut PgConnection,
    job: JobId,
    dataset: i32,
    share: f64,
    own: &mut OwnShards,
    shards: &[ShardPlan],
) -> Result<(), StoreError> {
    for batch in shards.chunks(BATCH) {
        let first = own.count;
        let audited: Vec<bool> = (first..first + batch.len())
            .map(|index| is_audited(index, share))
            .collect();
        sqlx::query(
            "insert into shards
                 (job_id, index, dataset, micro_batches, windows, scored_tokens, flops,
                  spans_digest, audit)
             select $1, $2 + s.n::integer - 1, $3, s.micro_batches, s.windows, s.scored_tokens,
                    s.flops, s.spans_digest, case when s.audited then 'wanted'::audit_state end
             from unnest($4::jsonb[], $5::bigint[], $6::bigint[], $7::double precision[],
                         $8::text[], $9::boolean[])
                  with ordinality
                  as s(micro_batches, windows, scored_tokens, flops, spans_digest, audited, n)",
        )
        .bind(job)
        .bind(int(first)?)
        .bind(dataset)
        .bind(column(batch, |s| to_json(&s.micro_batches))?)
        .bind(column(batch, |s| bigint(s.windows().count() as u64))?)
        .bind(column(batch, |s| bigint(s.scored_tokens))?)
        .bind(column(batch, |s| Ok(s.flops))?)
        .bind(column(batch, |s| Ok(&*s.spans_digest))?)
        .bind(&audited)
        .execute(&mut *tx)
        .await?;
        own.count += batch.len();
        own.to_audit += int(audited.iter().filter(|audited| **audited).count())?;
        own.flops += batch.iter().map(|shard| shard.flops).sum::<f64>();
    }
    Ok(())
}

fn column<'a, T>(
    shards: &'a [ShardPlan],
    value: impl Fn(&'a ShardPlan) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    shards.iter().map(value).collect()
}

/// Whether the shards to audit, rounded up, are one more with this one: so a job that asks for any
/// has one.
fn is_audited(index: usize, share: f64) -> bool {
    let whole = |shards: usize| (shards as f64 * share).ceil();
    whole(index + 1) > whole(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audits_are_spread_evenly() {
        let audited =
            |share| -> Vec<usize> { (0..10).filter(|index| is_audited(*index, share)).collect() };
        assert!(audited(0.0).is_empty());
        assert_eq!(audited(1.0), (0..10).collect::<Vec<_>>());
        assert_eq!(audited(0.25), [0, 4, 8]);
        assert_eq!(audited(0.01), [0]);
    }
}
