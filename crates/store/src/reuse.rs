//! Numbers taken from an earlier job that scored the same.
//!
//! Numbers are taken within a project alone: whether another one scored a text is its own affair.
//!
//! The planner names what decides a row's numbers by its content key. Within the transaction that
//! stores the plan, a row that was finished under the same key by one device kind lends its sums
//! and statistics; the new row then needs no shard. What is finished never changes, so of the
//! other job only the row is locked, against its deletion alone.

use assay_api::JobId;
use sqlx::PgConnection;

use crate::StoreError;
use crate::audit::agreed_elsewhere;
use crate::plan::PlannedRow;

/// A finished row of another job.
pub(crate) struct Source {
    pub(crate) job: JobId,
    pub(crate) row: i32,
}

/// The oldest row that can lend its numbers to row `index` of `job`, whose documents are stored.
///
/// The key promises that the numbers are equal. What the ledger itself knows of both must agree
/// too, so that a key that promises too much lends no statistics about other documents.
pub(crate) async fn find(
    tx: &mut PgConnection,
    job: JobId,
    index: i32,
    device_kind: &str,
    row: &PlannedRow<'_>,
) -> Result<Option<Source>, StoreError> {
    // A job that failed because nodes disagree (E3) is no witness; nor is a worker that was taken
    // out of service, unless another one agreed. Who asks for audits wants them of all numbers.
    let source: Option<(JobId, i32)> = sqlx::query_as(concat!(
        "select d.job_id, d.index
         from datasets d join jobs j on j.id = d.job_id, jobs n
         where n.id = $1 and j.project_id = n.project_id and d.content_key = $3 and d.device_kind = $4 and d.reused_from is null
           and d.statistics is not null and d.job_id <> $1
           and coalesce(j.error ->> 'code', '') not like 'E3%'
           and d.tokens_digest = $5 and d.clusters = $6 and d.planned_tokens = $7
           and d.prefix is not distinct from $8 and d.text_measures = $9
           and d.group_names is not distinct from $10
           and not exists (
               select from shards s
               join attempts a on a.fence = s.fence
               join workers w on w.id = a.worker_id
               where s.job_id = d.job_id and s.dataset = d.index
                 and w.out_of_service_at is not null and not coalesce(",
        agreed_elsewhere!(),
        ", false)
           )
           and (n.audit = 0 or n.audit <= j.audit and not exists (
               select from shards w
               where w.job_id = d.job_id and w.dataset = d.index and w.audit = 'waived'
           ))
           and not exists (
               select from (
                   select * from document_chunks where job_id = $1 and dataset = $2
               ) n full join (
                   select * from document_chunks where job_id = d.job_id and dataset = d.index
               ) o on o.chunk = n.chunk
               where (n.tokens, n.bytes, n.words, n.groups)
                     is distinct from (o.tokens, o.bytes, o.words, o.groups)
           )
         order by d.job_id, d.index
         limit 1
         for key share of j skip locked",
    ))
    .bind(job)
    .bind(index)
    .bind(&row.new.content_key)
    .bind(device_kind)
    .bind(&row.new.tokens_digest)
    .bind(&row.clusters)
    .bind(row.planned_tokens)
    .bind(row.prefix)
    .bind(row.new.text_measures)
    .bind(&row.group_names)
    .fetch_optional(tx)
    .await?;
    Ok(source.map(|(job, row)| Source { job, row }))
}

/// Copies the sums of the documents. The caller holds the job's lock.
pub(crate) async fn copy_sums(
    tx: &mut PgConnection,
    job: JobId,
    index: i32,
    source: &Source,
) -> Result<(), StoreError> {
    sqlx::query(
        "update document_chunks n set scored = o.scored, nll = o.nll
         from document_chunks o
         where n.job_id = $1 and n.dataset = $2
           and o.job_id = $3 and o.dataset = $4 and o.chunk = n.chunk",
    )
    .bind(job)
    .bind(index)
    .bind(source.job)
    .bind(source.row)
    .execute(tx)
    .await?;
    Ok(())
}
