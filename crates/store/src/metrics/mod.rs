//! What the ledger says of itself, for `GET /metrics`.
//!
//! Counts are of all time, so they grow whatever is started anew. What can no longer change is
//! read once in the life of a [`MetricsReader`] and remembered; a reading costs what has happened
//! since the one before, and in the last five minutes.

mod now;
mod removed;
mod totals;

use std::collections::BTreeMap;
use std::time::Duration;

use assay_api::{DeliveryState, JobState};
use chrono::{DateTime, TimeDelta, Utc};

use crate::{Store, StoreError};
pub(crate) use removed::keep_counts;
use totals::{Settled, Totals};

/// Upper bounds of the classes of [`ClaimLatency`], which belong to them.
pub const CLAIM_LATENCY_BOUNDS: [Duration; 12] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(5),
    Duration::from_mins(30),
];

/// What [`DeviceTotals::recent_tokens`] is about. What ended longer ago is taken to be settled:
/// whatever was begun before it is visible by then, as no transaction that claims waits for a lock
/// or may pause for longer than some seconds.
pub const RECENT: Duration = Duration::from_mins(5);

/// Longest time of a statement. The first reading of a process looks at every attempt.
const LONGEST: &str = "set local statement_timeout = '60s'";

/// What the ledger says of itself at one moment. Labels are those of the schema; what may be
/// counted and has not occurred is there with 0.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerMetrics {
    /// Jobs of all states, in the order of [`JobState::ALL`].
    pub jobs: Vec<(JobState, u64)>,
    /// Shards of running jobs that nobody has claimed.
    pub queued_shards: u64,
    /// For `planning` and `shards`: the longest time for which a job has had such work to claim
    /// while nobody claimed any of it. Zero where nothing waits.
    pub unclaimed: BTreeMap<String, Duration>,
    /// Live attempts, by kind.
    pub running_attempts: BTreeMap<String, u64>,
    /// Workers: `live`, `out_of_service`, and `lost` within the last hour.
    pub workers: BTreeMap<String, u64>,
    /// Devices of live workers in service, by their kind.
    pub devices: BTreeMap<String, u64>,
    /// Attempts that have ended, by kind and outcome. What was taken back later has `committed`.
    pub attempts: BTreeMap<(String, String), u64>,
    /// Attempts whose result counted and was taken back.
    pub revoked_attempts: u64,
    /// Results that came after their attempt had ended otherwise.
    pub late_results: u64,
    /// By device kind, those of [`LedgerMetrics::devices`] included.
    pub device_kinds: BTreeMap<String, DeviceTotals>,
    /// For `planning`: from the post of a job until its planning was first claimed. For `shards`:
    /// from the end of its planning until the first of its shards was.
    pub claim_latency: BTreeMap<String, ClaimLatency>,
    /// Deliveries to webhooks of all states, in the order of [`DeliveryState::ALL`].
    pub deliveries: Vec<(DeliveryState, u64)>,
    /// The time since the end of the first job whose delivery is pending. Zero if none is.
    pub pending_delivery: Duration,
}

/// What devices of one kind have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTotals {
    /// Tokens of the shards that they brought first. What was taken back later is included.
    pub tokens: u64,
    /// Those of them that were counted within [`RECENT`].
    pub recent_tokens: u64,
    /// Time that committed attempts computed.
    pub computing: Duration,
    /// Time that they waited for their claims, and until the result before was taken from them.
    pub claiming: Duration,
    /// Time that they loaded models.
    pub loading: Duration,
    /// Time that their results waited to be counted, while the device went on.
    pub committing: Duration,
}

/// How long work waited for its first claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimLatency {
    /// How many waited for at most the bound of their class and longer than the one before it;
    /// behind those of [`CLAIM_LATENCY_BOUNDS`] a class without a bound.
    pub classes: [u64; CLAIM_LATENCY_BOUNDS.len() + 1],
    /// All of it together.
    pub sum: Duration,
}

/// Reads [`LedgerMetrics`] again and again.
#[derive(Debug)]
pub struct MetricsReader {
    store: Store,
    settled: Settled,
    /// How many jobs had been deleted by the last reading: what they counted is in `settled`.
    removed: u64,
}

impl MetricsReader {
    /// One that remembers nothing yet: its first reading looks at every attempt there ever was.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            settled: Settled::default(),
            removed: 0,
        }
    }

    /// Reads all of it, at one moment and without a lock.
    ///
    /// # Errors
    /// The database does not answer, or takes longer than a minute.
    pub async fn read(&mut self, now: Option<DateTime<Utc>>) -> Result<LedgerMetrics, StoreError> {
        let mut tx = self.store.pool.begin().await?;
        sqlx::query("set transaction isolation level repeatable read, read only")
            .execute(&mut *tx)
            .await?;
        sqlx::query(LONGEST).execute(&mut *tx).await?;
        let now: DateTime<Utc> = sqlx::query_scalar("select coalesce($1, now())")
            .bind(now)
            .fetch_one(&mut *tx)
            .await?;
        let removed = removed::jobs(&mut tx).await?;
        let count: u64 = removed.values().sum();
        if count != self.removed {
            // What is remembered may be of them. It is counted anew, with what they left behind.
            self.settled = Settled::of_removed(&mut tx).await?;
            self.removed = count;
        }
        // Replaced once all is read: a reading that fails in the middle has counted nothing.
        let (settled, totals) = self.settled.advance(&mut tx, now - recent()).await?;
        let metrics = now::read(&mut tx, now, totals, &removed).await?;
        tx.commit().await?;
        self.settled = settled;
        Ok(metrics)
    }
}

/// [`RECENT`] as PostgreSQL takes it.
fn recent() -> TimeDelta {
    TimeDelta::from_std(RECENT).expect("five minutes are within the range")
}
