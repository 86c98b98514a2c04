//! The loops that keep the ledger and the uploads tidy while the server runs.

use std::time::Duration;

use assay_store::{Store, StoreError};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::uploads::Files;

const PERIOD: Duration = Duration::from_secs(1);
/// Between two looks for files that nothing needs any longer.
const SWEEP_PERIOD: Duration = Duration::from_mins(10);
const DAY: Duration = Duration::from_hours(24);
/// Longest wait for a round: a connection whose other end vanished never gives an answer.
const ANSWER: Duration = Duration::from_mins(1);

/// Ends attempts whose lease has run out, once a second until `stop`.
///
/// Several servers may do so at once: the statement is idempotent and uses the database's clock.
pub(crate) async fn check_leases(store: &Store, stop: &CancellationToken) {
    let mut ticks = interval(PERIOD);
    // After a pause of the database there is one round to catch up with, not one per second.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0_u64;
    let rounds = async {
        loop {
            ticks.tick().await;
            let round = timeout(ANSWER, store.reap(None)).await;
            match round.unwrap_or(Err(StoreError::NoAnswer(ANSWER))) {
                Ok(reaped) => {
                    if failures > 0 {
                        tracing::info!(failures, "leases are being checked again");
                        failures = 0;
                    }
                    if reaped.attempts > 0 {
                        tracing::warn!(attempts = reaped.attempts, "leases ran out");
                    }
                }
                Err(error) => {
                    // A database that is away fails every round: only the first is news.
                    if failures == 0 {
                        tracing::warn!(%error, "cannot check leases; trying again every second");
                    }
                    failures += 1;
                }
            }
        }
    };
    tokio::select! {
        () = rounds => (),
        () = stop.cancelled() => (),
    }
}

/// Removes files of uploads that nothing needs any longer, every ten minutes until `stop`. Several
/// servers may do so at once.
pub(crate) async fn sweep_uploads(store: &Store, files: &Files, stop: &CancellationToken) {
    let mut ticks = interval(SWEEP_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rounds = async {
        loop {
            ticks.tick().await;
            if let Err(error) = files.sweep(store).await {
                tracing::warn!(%error, "cannot look for files of uploads to remove");
            }
        }
    };
    tokio::select! {
        () = rounds => (),
        () = stop.cancelled() => (),
    }
}

/// Deletes jobs that ended more than `days` ago, if any number is given, every ten minutes until
/// `stop`. Several servers may do so at once.
pub(crate) async fn remove_old_jobs(store: &Store, days: Option<u32>, stop: &CancellationToken) {
    let Some(days) = days else { return };
    let keep = DAY * days;
    let mut ticks = interval(SWEEP_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let rounds = async {
        loop {
            ticks.tick().await;
            match store.remove_old_jobs(keep, None).await {
                Ok(0) => (),
                Ok(jobs) => tracing::info!(jobs, "deleted old jobs"),
                Err(error) => tracing::warn!(%error, "cannot delete old jobs"),
            }
        }
    };
    tokio::select! {
        () = rounds => (),
        () = stop.cancelled() => (),
    }
}
