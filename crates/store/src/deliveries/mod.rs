//! Deliveries to the webhooks of jobs that have ended. The schema's trigger makes them; servers
//! claim what is due, send it, and tell how that ended.
//!
//! A claim is a lease with a fence, as those of shards are: the delivery is due again once the
//! lease has run out, and whoever tells of an older attempt by then changes nothing. Nothing of a
//! job is locked here.

mod read;

use std::fmt;
use std::time::Duration;

use assay_api::JobId;
use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgConnection};

use crate::rows::{bigint, detail, index_of, int};
use crate::{Store, StoreError};

/// What an attempt is told to be that nobody told the end of.
const LOST: &str = "the server that sent it went away before it could tell how that ended";

/// A webhook to store with its job.
pub struct NewWebhook<'a> {
    /// What is posted to.
    pub url: &'a str,
    /// Host and port of it.
    pub receiver: &'a str,
    /// What is signed with.
    pub key: &'a SigningKey,
}

/// What deliveries are signed with. No message shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// The key itself.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for SigningKey {
    fn from(key: Vec<u8>) -> Self {
        Self(key)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// A delivery that is this server's to send, for as long as the lease holds.
#[derive(Clone, Debug)]
pub struct DeliveryClaim {
    /// The job that has ended.
    pub job: JobId,
    /// Number of the delivery in the job.
    pub number: u32,
    /// Number of this attempt: the fence.
    pub attempt: u32,
    /// When the attempt began.
    pub at: DateTime<Utc>,
    /// Which attempt it is since the delivery was asked for, from 1.
    pub tries: u32,
    /// Where it goes.
    pub url: String,
    /// Host and port of that.
    pub receiver: String,
    /// What it is signed with.
    pub key: SigningKey,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryOutcome {
    /// The HTTP status that the receiver answered, if it did.
    pub status: Option<u16>,
    /// Why it is not delivered, if it is not.
    pub error: Option<String>,
    /// What becomes of the delivery.
    pub next: Next,
}

/// What becomes of a delivery after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It has arrived.
    Delivered,
    /// It is tried again after this time.
    Again(Duration),
    /// It is not tried again.
    Failed,
}

#[derive(FromRow)]
struct ClaimRow {
    job_id: JobId,
    number: i32,
    attempt: i32,
    tries: i32,
    at: DateTime<Utc>,
    url: String,
    receiver: String,
    key: Vec<u8>,
}

impl DeliveryClaim {
    /// The header `webhook-id`.
    pub fn webhook_id(&self) -> String {
        read::webhook_id(self.job, self.number)
    }
}

impl Store {
    /// Claims deliveries that are due, at most `limit` and one for each receiver, of those that are
    /// not `busy`. Several servers may do so at once. What was claimed before and not told the end
    /// of within its `lease` is claimed anew.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn claim_deliveries(
        &self,
        limit: usize,
        busy: &[String],
        lease: Duration,
        now: Option<DateTime<Utc>>,
    ) -> Result<Vec<DeliveryClaim>, StoreError> {
        // What is found locked is another server's. What that one has claimed in between is due
        // later by then: the lock looks at the conditions again.
        let rows: Vec<ClaimRow> = sqlx::query_as(
            "with first as (
                 select distinct on (receiver) job_id, number, due_at from deliveries
                 where state = 'pending' and due_at <= coalesce($4, now())
                   and receiver <> all($2)
                 order by receiver, due_at
             ), due as (
                 select d.job_id, d.number
                 from deliveries d join first f on f.job_id = d.job_id and f.number = d.number
                 where d.state = 'pending' and d.due_at <= coalesce($4, now())
                 order by f.due_at
                 limit $1
                 for no key update of d skip locked
             ), claimed as (
                 update deliveries d
                 set attempts = d.attempts + 1, tries = d.tries + 1,
                     due_at = coalesce($4, now()) + make_interval(secs => $3)
                 from due where d.job_id = due.job_id and d.number = due.number
                 returning d.job_id, d.number, d.attempts as attempt, d.tries, d.receiver
             ), lost as (
                 update delivery_attempts a
                 set finished_at = coalesce($4, now()), error = $5
                 from claimed c
                 where a.job_id = c.job_id and a.delivery = c.number and a.finished_at is null
             ), begun as (
                 insert into delivery_attempts (job_id, delivery, number, started_at)
                 select job_id, number, attempt, coalesce($4, now()) from claimed
             )
             select c.job_id, c.number, c.attempt, c.tries, coalesce($4, now()) as at, w.url, c.receiver, w.key
             from claimed c join webhooks w on w.job_id = c.job_id",
        )
        .bind(bigint(limit as u64)?)
        .bind(busy)
        .bind(lease.as_secs_f64())
        .bind(now)
        .bind(LOST)
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(ClaimRow::into_claim).collect()
    }

    /// Tells how an attempt ended. Answers whether that counts: not if it took longer than its
    /// lease and somebody else has claimed the delivery since.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn end_delivery_attempt(
        &self,
        claim: &DeliveryClaim,
        outcome: &DeliveryOutcome,
        now: Option<DateTime<Utc>>,
    ) -> Result<bool, StoreError> {
        let (state, pause) = match outcome.next {
            Next::Delivered => ("delivered", None),
            Next::Again(pause) => ("pending", Some(pause.as_secs_f64())),
            Next::Failed => ("failed", None),
        };
        let ended = sqlx::query(
            "with ended as (
                 update deliveries
                 set state = $4::delivery_state,
                     due_at = coalesce($8, now()) + make_interval(secs => $5),
                     ended_at = case when $5 is null then coalesce($8, now()) end
                 where job_id = $1 and number = $2 and attempts = $3 and state = 'pending'
                 returning job_id
             )
             update delivery_attempts a
             set finished_at = coalesce($8, now()), status = $6, error = $7
             from ended
             where a.job_id = ended.job_id and a.delivery = $2 and a.number = $3
               and a.finished_at is null",
        )
        .bind(claim.job)
        .bind(int(claim.number)?)
        .bind(int(claim.attempt)?)
        .bind(state)
        .bind(pause)
        .bind(outcome.status.map(i32::from))
        .bind(outcome.error.as_deref().map(detail))
        .bind(now)
        .execute(&self.pool)
        .await?;
        Ok(ended.rows_affected() > 0)
    }
}

/// Stores the webhook of a job that is being stored.
pub(crate) async fn insert_webhook(
    tx: &mut PgConnection,
    job: JobId,
    webhook: &NewWebhook<'_>,
) -> Result<(), StoreError> {
    sqlx::query("insert into webhooks (job_id, url, receiver, key) values ($1, $2, $3, $4)")
        .bind(job)
        .bind(webhook.url)
        .bind(webhook.receiver)
        .bind(webhook.key.expose())
        .execute(tx)
        .await?;
    Ok(())
}

impl ClaimRow {
    fn into_claim(self) -> Result<DeliveryClaim, StoreError> {
        Ok(DeliveryClaim {
            job: self.job_id,
            number: index_of(self.number)?,
            attempt: index_of(self.attempt)?,
            tries: index_of(self.tries)?,
            at: self.at,
            url: self.url,
            receiver: self.receiver,
            key: self.key.into(),
        })
    }
}
