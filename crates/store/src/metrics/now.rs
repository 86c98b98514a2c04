//! What is there at this moment: the queue, the workers.

use std::collections::BTreeMap;
use std::time::Duration;

use assay_api::{DeliveryState, JobState};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{LedgerMetrics, Totals};
use crate::StoreError;
use crate::rows::count;

/// What can be waited for.
const WORK: [&str; 2] = ["planning", "shards"];

/// Adds what is now to the counts of all time, and what they lack with 0.
pub(super) async fn read(
    tx: &mut PgConnection,
    now: DateTime<Utc>,
    totals: Totals,
    removed: &BTreeMap<String, u64>,
) -> Result<LedgerMetrics, StoreError> {
    let jobs = jobs(tx, removed).await?;
    let queued_shards: i64 = sqlx::query_scalar(
        "select count(*) from jobs j join shards s on s.job_id = j.id
         where j.state = 'running' and s.state = 'queued'",
    )
    .fetch_one(&mut *tx)
    .await?;
    let unclaimed = unclaimed(tx, now).await?;
    let kinds_and_outcomes: Vec<(String, String)> = sqlx::query_as(
        "select kind::text, outcome::text
         from unnest(enum_range(null::attempt_kind)) kind,
              unnest(enum_range(null::attempt_outcome)) outcome
         where outcome <> 'revoked'",
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut running_attempts: BTreeMap<String, u64> = kinds_and_outcomes
        .iter()
        .map(|(kind, _)| (kind.clone(), 0))
        .collect();
    running_attempts.extend(counts(
        sqlx::query_as(
            "select kind::text, count(*) from attempts where outcome is null group by kind",
        )
        .fetch_all(&mut *tx)
        .await?,
    )?);
    let mut attempts: BTreeMap<(String, String), u64> = kinds_and_outcomes
        .into_iter()
        .map(|ended| (ended, 0))
        .collect();
    attempts.extend(totals.attempts);
    let (late, revoked): (i64, i64) = sqlx::query_as(
        "select (count(*) filter (where late)
                 + (select coalesce(sum(late), 0) from removed_attempts))::bigint,
                (count(*) filter (where outcome = 'revoked')
                 + (select coalesce(sum(revoked), 0) from removed_attempts))::bigint
         from attempts where late or outcome = 'revoked'",
    )
    .fetch_one(&mut *tx)
    .await?;
    let devices = devices(tx, now).await?;
    let mut device_kinds = totals.device_kinds;
    for kind in devices.keys() {
        device_kinds.entry(kind.clone()).or_default();
    }
    let (deliveries, pending_delivery) = deliveries(tx, now).await?;
    let mut claim_latency = totals.claim_latency;
    for work in WORK {
        claim_latency.entry(work.to_owned()).or_default();
    }
    Ok(LedgerMetrics {
        jobs,
        queued_shards: count(queued_shards)?,
        unclaimed,
        running_attempts,
        workers: workers(tx, now).await?,
        devices,
        attempts,
        revoked_attempts: count(revoked)?,
        late_results: count(late)?,
        device_kinds,
        claim_latency,
        deliveries,
        pending_delivery,
    })
}

/// Jobs that there are by state, and those that were and are deleted.
async fn jobs(
    tx: &mut PgConnection,
    removed: &BTreeMap<String, u64>,
) -> Result<Vec<(JobState, u64)>, StoreError> {
    let found: BTreeMap<String, u64> = counts(
        sqlx::query_as("select state::text, count(*) from jobs group by state")
            .fetch_all(tx)
            .await?,
    )?;
    let of = |state: &JobState| {
        let [there, gone] = [&found, removed].map(|jobs| jobs.get(state.as_str()));
        there.unwrap_or(&0) + gone.unwrap_or(&0)
    };
    Ok(JobState::ALL
        .iter()
        .map(|state| (*state, of(state)))
        .collect())
}

/// How many deliveries there are in each state, and how long the oldest that is pending has been.
async fn deliveries(
    tx: &mut PgConnection,
    now: DateTime<Utc>,
) -> Result<(Vec<(DeliveryState, u64)>, Duration), StoreError> {
    let found: BTreeMap<String, u64> = counts(
        sqlx::query_as("select state::text, count(*) from deliveries group by state")
            .fetch_all(&mut *tx)
            .await?,
    )?;
    let oldest: Option<DateTime<Utc>> =
        sqlx::query_scalar("select min(created_at) from deliveries where state = 'pending'")
            .fetch_one(tx)
            .await?;
    let of = |state: &DeliveryState| found.get(state.as_str()).copied().unwrap_or(0);
    let states = DeliveryState::ALL.iter();
    let deliveries = states.map(|state| (*state, of(state))).collect();
    Ok((deliveries, age(now, oldest)))
}

/// The time since then; zero if there is none.
fn age(now: DateTime<Utc>, since: Option<DateTime<Utc>>) -> Duration {
    let age = since.and_then(|since| (now - since).to_std().ok());
    age.unwrap_or_default()
}

pub(super) fn counts(rows: Vec<(String, i64)>) -> Result<BTreeMap<String, u64>, StoreError> {
    rows.into_iter()
        .map(|(label, n)| Ok((label, count(n)?)))
        .collect()
}

/// See [`LedgerMetrics::unclaimed`]. A job whose baseline is being measured has nothing to claim
/// for others.
async fn unclaimed(
    tx: &mut PgConnection,
    now: DateTime<Utc>,
) -> Result<BTreeMap<String, Duration>, StoreError> {
    let since: (Option<DateTime<Utc>>, Option<DateTime<Utc>>) = sqlx::query_as(
        "select (
             select min(greatest(j.created_at, (
                 select max(a.finished_at) from attempts a
                 where a.job_id = j.id and a.shard is null
             )))
             from jobs j where j.state = 'queued'
         ), (
             select min(greatest(
                 (select max(a.finished_at) from attempts a
                  where a.job_id = j.id and a.shard is null),
                 (select max(a.started_at) from attempts a
                  where a.job_id = j.id and a.kind <> 'plan')
             ))
             from jobs j
             where j.state = 'running' and j.baseline_state is distinct from 'running'
               and exists (select from shards s where s.job_id = j.id and s.state = 'queued')
         )",
    )
    .fetch_one(tx)
    .await?;
    let ages = [age(now, since.0), age(now, since.1)];
    Ok(WORK.map(str::to_owned).into_iter().zip(ages).collect())
}

async fn workers(
    tx: &mut PgConnection,
    now: DateTime<Utc>,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let (live, out_of_service, lost): (i64, i64, i64) = sqlx::query_as(
        "select count(*) filter (where lease_until > $1 and out_of_service_at is null),
                count(*) filter (where lease_until > $1 and out_of_service_at is not null),
                count(*) filter (where lease_until <= $1)
         from workers
         where stopped_at is null and lease_until > $1 - interval '1 hour'",
    )
    .bind(now)
    .fetch_one(tx)
    .await?;
    [
        ("live", live),
        ("out_of_service", out_of_service),
        ("lost", lost),
    ]
    .into_iter()
    .map(|(state, n)| Ok((state.to_owned(), count(n)?)))
    .collect()
}

async fn devices(
    tx: &mut PgConnection,
    now: DateTime<Utc>,
) -> Result<BTreeMap<String, u64>, StoreError> {
    counts(
        sqlx::query_as(
            "select e ->> 'kind', count(*)
             from workers w cross join jsonb_array_elements(w.devices) e
             where w.stopped_at is null and w.lease_until > $1 and w.out_of_service_at is null
             group by 1",
        )
        .bind(now)
        .fetch_all(tx)
        .await?,
    )
}
