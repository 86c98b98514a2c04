//! The log of deliveries, and asking for one anew.

use assay_api::{Delivery, DeliveryAttempt, JobId};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::project::is_seen;
use crate::rows::{index_of, parse};
use crate::{Store, StoreError};

#[derive(FromRow)]
struct DeliveryRow {
    number: i32,
    kind: String,
    url: String,
    state: String,
    created_at: DateTime<Utc>,
    next_attempt_at: Option<DateTime<Utc>>,
}

#[derive(FromRow)]
struct AttemptRow {
    delivery: i32,
    started_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    status: Option<i32>,
    error: Option<String>,
}

impl Store {
    /// The deliveries of a job with all their attempts, oldest first. Empty until the job has
    /// ended, and if it has no webhook.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn deliveries(&self, job: JobId) -> Result<Vec<Delivery>, StoreError> {
        // Of the ledger at one moment: an attempt that begins in between would be there without
        // its delivery knowing of it.
        let mut tx = self.pool.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only")
            .execute(&mut *tx)
            .await?;
        let rows: Vec<DeliveryRow> = sqlx::query_as(concat!(
            "select d.number, 'job.' || j.state as kind, w.url, d.state::text as state,
                    d.created_at,
                    case when not exists (
                        select from delivery_attempts a
                        where a.job_id = d.job_id and a.delivery = d.number
                          and a.finished_at is null
                    ) then d.due_at end as next_attempt_at
             from deliveries d
             join webhooks w on w.job_id = d.job_id
             join jobs j on j.id = d.job_id
             where d.job_id = $1 and ",
            is_seen!("$1", "$2"),
            " order by d.number",
        ))
        .bind(job)
        .bind(self.project())
        .fetch_all(&mut *tx)
        .await?;
        let attempts: Vec<AttemptRow> = sqlx::query_as(concat!(
            "select delivery, started_at, finished_at, status, error
             from delivery_attempts where job_id = $1 and ",
            is_seen!("$1", "$2"),
            " order by delivery, number",
        ))
        .bind(job)
        .bind(self.project())
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter()
            .map(|row| {
                let number = row.number;
                let of_row = attempts.iter().filter(|a| a.delivery == number);
                row.into_delivery(job, of_row)
            })
            .collect()
    }

    /// Makes a delivery due at once, with all its tries before it, whether it has ended or waits.
    /// One that is being sent is left alone. False if there is no such delivery.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn retry_delivery(
        &self,
        job: JobId,
        number: u32,
        now: Option<DateTime<Utc>>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.pool.begin().await?;
        let found: Option<bool> = sqlx::query_scalar(concat!(
            "with asked as (
                 update deliveries d
                 set state = 'pending', due_at = coalesce($3, now()), ended_at = null, tries = 0
                 where d.job_id = $1 and d.number = $2 and ",
            is_seen!("$1", "$4"),
            " and not exists (
                     select from delivery_attempts a
                     where a.job_id = $1 and a.delivery = $2 and a.finished_at is null
                 )
             )
             select true from deliveries where job_id = $1 and number = $2 and ",
            is_seen!("$1", "$4"),
        ))
        .bind(job)
        // No job has as many deliveries as do not fit.
        .bind(i32::try_from(number).unwrap_or(i32::MAX))
        .bind(now)
        .bind(self.project())
        .fetch_optional(&mut *tx)
        .await?;
        if found.is_none() {
            tx.rollback().await?;
            return Ok(false);
        }
        self.note(&mut tx, "retry_delivery", &webhook_id(job, number), 200)
            .await?;
        tx.commit().await?;
        Ok(true)
    }
}

impl DeliveryRow {
    fn into_delivery<'a>(
        self,
        job: JobId,
        attempts: impl Iterator<Item = &'a AttemptRow>,
    ) -> Result<Delivery, StoreError> {
        let number = index_of(self.number)?;
        let attempts = attempts.map(|attempt| {
            let status = attempt.status.map(u16::try_from).transpose();
            Ok(DeliveryAttempt {
                started_at: attempt.started_at,
                finished_at: attempt.finished_at,
                status: status
                    .map_err(|_| StoreError::Unexpected(format!("status {:?}", attempt.status)))?,
                error: attempt.error.clone(),
            })
        });
        Ok(Delivery {
            number,
            webhook_id: webhook_id(job, number),
            kind: self.kind,
            url: self.url,
            state: parse(self.state)?,
            created_at: self.created_at,
            next_attempt_at: self.next_attempt_at,
            attempts: attempts.collect::<Result<_, StoreError>>()?,
        })
    }
}

/// What a receiver knows a delivery by: the same in all its attempts.
pub(super) fn webhook_id(job: JobId, number: u32) -> String {
    format!("{job}-{number}")
}
