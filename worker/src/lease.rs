//! The attempts this worker holds, shared between the devices and the heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

/// A device that has not ended a micro-batch for this long is hung, whatever was predicted.
const PATIENCE: Duration = Duration::from_mins(5);
/// ... and for this many times its predicted time.
const PATIENCE_FACTOR: u32 = 10;

/// One attempt held by this worker.
#[derive(Debug)]
pub(crate) struct Lease {
    fence: i64,
    stop: CancellationToken,
    /// When the device must have advanced. None while no device works on it: reading datasets and
    /// loading a model take as long as the disk takes.
    deadline: Mutex<Option<Instant>>,
}

impl Lease {
    /// Whether to stop: the attempt has ended without us, or the worker is stopping.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Returns once [`Lease::is_stopped`].
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Tells whoever works under this lease to stop after the running micro-batch.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// The device starts a micro-batch that should take `predicted`.
    pub(crate) fn advance(&self, predicted: Duration) {
        let patience = PATIENCE.max(predicted.saturating_mul(PATIENCE_FACTOR));
        // None if it lies beyond what the clock can tell: then the device is never hung.
        *lock(&self.deadline) = Instant::now().checked_add(patience);
    }

    fn is_hung(&self, now: Instant) -> bool {
        lock(&self.deadline).is_some_and(|deadline| now > deadline)
    }
}

/// All attempts held by this worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    held: Arc<Mutex<BTreeMap<i64, Arc<Lease>>>>,
}

impl Leases {
    /// Holds an attempt: from now on the heartbeat renews it.
    pub(crate) fn hold(&self, fence: i64) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            fence,
            stop: CancellationToken::new(),
            deadline: Mutex::new(None),
        });
        lock(&self.held).insert(fence, Arc::clone(&lease));
        lease
    }

    /// Lets an attempt go, after it ended in the ledger.
    pub(crate) fn drop_lease(&self, lease: &Lease) {
        lock(&self.held).remove(&lease.fence);
    }

    /// The attempts to renew: all that are held, but those of a hung device.
    pub(crate) fn to_renew(&self) -> Vec<i64> {
        let now = Instant::now();
        let held = lock(&self.held);
        held.values()
            .filter(|lease| !lease.is_hung(now))
            .map(|lease| lease.fence)
            .collect()
    }

    /// Stops those of the attempts `asked` that are no longer among the `live`.
    /// Attempts held since the question was asked are not judged by its answer.
    pub(crate) fn stop_ended(&self, asked: &[i64], live: &[i64]) {
        let held = lock(&self.held);
        for fence in asked.iter().filter(|fence| !live.contains(fence)) {
            if let Some(lease) = held.get(fence)
                && !lease.is_stopped()
            {
                tracing::warn!(fence, "the attempt has ended in the ledger; stopping it");
                lease.stop();
            }
        }
    }

    /// Those of this worker's `live` attempts that nobody here holds. One that stays so is an
    /// orphan: the answer to its claim was lost on the way. One that does not was just being
    /// claimed or ended.
    pub(crate) fn not_held(&self, live: &[i64]) -> BTreeSet<i64> {
        let held = lock(&self.held);
        live.iter()
            .copied()
            .filter(|fence| !held.contains_key(fence))
            .collect()
    }

    /// Stops all attempts.
    pub(crate) fn stop_all(&self) {
        lock(&self.held).values().for_each(|lease| lease.stop());
    }
}

/// A lock whose data stays valid when a holder panics: every update is a single assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attempts_asked_about_are_stopped() {
        let leases = Leases::default();
        let (first, second) = (leases.hold(1), leases.hold(2));
        let asked = leases.to_renew();
        let third = leases.hold(3);
        leases.stop_ended(&asked, &[2]);
        assert!(first.is_stopped());
        assert!(!second.is_stopped());
        assert!(!third.is_stopped(), "it was claimed after the question");
        leases.drop_lease(&first);
        assert_eq!(leases.to_renew(), [2, 3]);
        assert_eq!(leases.not_held(&[1, 2, 3, 4]), [1, 4].into());
    }

    #[test]
    fn a_hung_device_is_not_renewed() {
        let leases = Leases::default();
        let lease = leases.hold(1);
        assert!(
            !lease.is_hung(Instant::now() + 10 * PATIENCE),
            "no device works on it yet"
        );
        lease.advance(Duration::from_mins(1));
        assert!(!lease.is_hung(Instant::now() + Duration::from_secs(599)));
        assert!(lease.is_hung(Instant::now() + Duration::from_secs(601)));
        lease.advance(Duration::from_secs(1));
        assert!(lease.is_hung(Instant::now() + PATIENCE + Duration::from_secs(1)));
    }
}
