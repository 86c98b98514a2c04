//! What the ledger says, read as often as is good for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use assay_api::JobState;
use assay_store::{
    CLAIM_LATENCY_BOUNDS, ClaimLatency, DeviceTotals, LedgerMetrics, MetricsReader, RECENT, Store,
    StoreError,
};
use prometheus_client::registry::Registry;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::rows::{Level, Spread, Total, register, register_by, register_one};

/// What was read within this time is not read again, however many ask.
const MAX_AGE: Duration = Duration::from_secs(5);
/// Longest wait of a scrape. Well below the usual patience of Prometheus, 10 s.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for the database: a connection whose other end vanished never gives an answer.
const ANSWER: Duration = Duration::from_mins(1);

/// What was read of the ledger.
#[derive(Debug)]
pub(super) struct Reading {
    metrics: LedgerMetrics,
    took: Duration,
}

/// Reads the ledger for one caller at a time. Clones are one.
#[derive(Clone)]
pub(super) struct LedgerCache(Arc<Mutex<Cached>>);

struct Cached {
    reader: MetricsReader,
    /// The last reading, and when it ended; None of a database that did not answer.
    last: Option<(Instant, Option<Arc<Reading>>)>,
}

impl LedgerCache {
    pub(super) fn new(store: Store) -> Self {
        Self(Arc::new(Mutex::new(Cached {
            reader: MetricsReader::new(store),
            last: None,
        })))
    }

    /// What the ledger says, [`MAX_AGE`] old at most. None if it does not answer, or not in time.
    pub(super) async fn read(&self) -> Option<Arc<Reading>> {
        let read = async {
            let mut cached = Arc::clone(&self.0).lock_owned().await;
            if let Some((at, reading)) = &cached.last
                && at.elapsed() < MAX_AGE
            {
                return reading.clone();
            }
            // A task of its own: what this scrape gives up waiting for is there for the next one.
            let reading = tokio::spawn(async move { cached.read().await });
            reading.await.ok().flatten()
        };
        timeout(PATIENCE, read).await.ok().flatten()
    }
}

impl Cached {
    async fn read(&mut self) -> Option<Arc<Reading>> {
        let started = Instant::now();
        let read = timeout(ANSWER, self.reader.read(None)).await;
        let reading = match read.unwrap_or(Err(StoreError::NoAnswer(ANSWER))) {
            Ok(metrics) => Some(Arc::new(Reading {
                metrics,
                took: started.elapsed(),
            })),
            Err(error) => {
                tracing::warn!(%error, "cannot read what the ledger says of itself");
                None
            }
        };
        self.last = Some((Instant::now(), reading.clone()));
        reading
    }
}

/// Adds what was read.
pub(super) fn register_reading(registry: &mut Registry, reading: &Reading) {
    let ledger = &reading.metrics;
    register_one(
        registry,
        "assay_ledger_read_seconds",
        "Time that the last reading of the ledger took",
        Level(reading.took.as_secs_f64()),
    );
    queue(registry, ledger);
    attempts(registry, ledger);
    devices(registry, ledger);
    webhooks(registry, ledger);
}

fn queue(registry: &mut Registry, ledger: &LedgerMetrics) {
    register_by(
        registry,
        "assay_jobs",
        "Jobs that have not ended, by state",
        "state",
        jobs(ledger, |state| !state.is_final()).map(|(state, n)| (state, Level(n))),
    );
    register_by(
        registry,
        "assay_jobs_ended",
        "Jobs that have ended, by state",
        "state",
        jobs(ledger, JobState::is_final).map(|(state, n)| (state, Total(n))),
    );
    register_one(
        registry,
        "assay_shards_queued",
        "Shards of running jobs that nobody has claimed",
        Level(ledger.queued_shards as f64),
    );
    register_by(
        registry,
        "assay_unclaimed_seconds",
        "Longest time that a job has had such work to claim while nobody claimed any of it",
        "work",
        ledger
            .unclaimed
            .iter()
            .map(|(work, age)| (work, Level(age.as_secs_f64()))),
    );
    register_by(
        registry,
        "assay_claim_latency_seconds",
        "Time from the post of a job to the first claim of its planning, and from the end of that \
         to the first claim of a shard",
        "work",
        ledger
            .claim_latency
            .iter()
            .map(|(work, latency)| (work, spread(latency))),
    );
}

/// How many jobs there are in each of these states.
fn jobs(
    ledger: &LedgerMetrics,
    which: impl Fn(JobState) -> bool,
) -> impl Iterator<Item = (&'static str, f64)> {
    let jobs = ledger.jobs.iter().filter(move |(state, _)| which(*state));
    jobs.map(|(state, n)| (state.as_str(), *n as f64))
}

fn attempts(registry: &mut Registry, ledger: &LedgerMetrics) {
    register_by(
        registry,
        "assay_attempts_running",
        "Live attempts, by kind",
        "kind",
        levels(&ledger.running_attempts),
    );
    register(
        registry,
        "assay_attempts",
        "Attempts that have ended, by kind and outcome; what was taken back later is committed",
        ledger.attempts.iter().map(|((kind, outcome), n)| {
            let labels = vec![("kind", kind.clone()), ("outcome", outcome.clone())];
            (labels, Total(*n as f64))
        }),
    );
    register_one(
        registry,
        "assay_attempts_revoked",
        "Attempts that counted and were taken back, as their worker computed wrong numbers",
        Total(ledger.revoked_attempts as f64),
    );
    register_one(
        registry,
        "assay_late_results",
        "Results that came after their attempt had ended otherwise, and were dropped",
        Total(ledger.late_results as f64),
    );
}

fn devices(registry: &mut Registry, ledger: &LedgerMetrics) {
    register_by(
        registry,
        "assay_workers",
        "Workers by state: live, out of service, lost within the last hour",
        "state",
        levels(&ledger.workers),
    );
    register_by(
        registry,
        "assay_devices",
        "Devices of live workers in service, by device kind",
        "device_kind",
        levels(&ledger.devices),
    );
    let kinds = &ledger.device_kinds;
    register_by(
        registry,
        "assay_tokens",
        "Tokens of the shards that were counted, by device kind",
        "device_kind",
        kinds
            .iter()
            .map(|(kind, done)| (kind, Total(done.tokens as f64))),
    );
    let per_second = |done: &DeviceTotals| done.recent_tokens as f64 / RECENT.as_secs_f64();
    register_by(
        registry,
        "assay_tokens_per_second",
        "Tokens counted per second over the last five minutes, by device kind",
        "device_kind",
        kinds
            .iter()
            .map(|(kind, done)| (kind, Level(per_second(done)))),
    );
    register(
        registry,
        "assay_device_seconds",
        "Time of devices behind what was counted, by device kind and what they did",
        kinds.iter().flat_map(|(kind, done)| {
            [
                ("computing", done.computing),
                ("claiming", done.claiming),
                ("loading", done.loading),
                ("committing", done.committing),
            ]
            .map(|(doing, time)| {
                let labels = vec![("device_kind", kind.clone()), ("doing", doing.to_owned())];
                (labels, Total(time.as_secs_f64()))
            })
        }),
    );
}

fn webhooks(registry: &mut Registry, ledger: &LedgerMetrics) {
    register_by(
        registry,
        "assay_webhook_deliveries",
        "Deliveries to webhooks that the ledger holds, by state",
        "state",
        ledger
            .deliveries
            .iter()
            .map(|(state, n)| (state.as_str(), Level(*n as f64))),
    );
    register_one(
        registry,
        "assay_webhook_pending_seconds",
        "Time since the end of the first job whose delivery is pending",
        Level(ledger.pending_delivery.as_secs_f64()),
    );
}

/// Counts that go up and down, by one label.
fn levels<'a>(
    counts: impl IntoIterator<Item = (&'a String, &'a u64)>,
) -> impl Iterator<Item = (&'a String, Level)> {
    counts
        .into_iter()
        .map(|(label, n)| (label, Level(*n as f64)))
}

fn spread(latency: &ClaimLatency) -> Spread {
    let bounds = CLAIM_LATENCY_BOUNDS.iter().map(Duration::as_secs_f64);
    Spread {
        classes: bounds.chain([f64::INFINITY]).zip(latency.classes).collect(),
        sum: latency.sum,
    }
}
