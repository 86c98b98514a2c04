//! The attempts this worker holds, shared between the devices and the heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A device that has not ended a micro-batch, or loaded a model, for this many times its predicted
/// time is hung, but not within the patience of the settings.
const PATIENCE_FACTOR: u32 = 10;

/// One attempt held by this worker.
#[derive(Debug)]
pub(crate) struct Lease {
    fence: i64,
    stop: CancellationToken,
    abandoned: CancellationToken,
    patience: Duration,
    /// When the device must have advanced. None while no device works on it: reading datasets
    /// takes as long as the disk takes.
    deadline: Mutex<Option<Instant>>,
    /// When the shard should end.
    expected: Mutex<Option<Instant>>,
    /// Whether its result waits to be counted: then there is nothing to stop.
    is_computed: AtomicBool,
}

impl Lease {
    /// The number of the attempt.
    pub(crate) fn fence(&self) -> i64 {
        self.fence
    }

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

    /// Returns once its device is known to be hung, so that nobody needs to wait for it any more.
    pub(crate) async fn abandoned(&self) {
        self.abandoned.cancelled().await;
    }

    /// The device starts a micro-batch, or loads a model, which should take `predicted`, and should
    /// have done the whole shard after `left`, if that is known.
    pub(crate) fn advance(&self, predicted: Duration, left: Option<Duration>) {
        let longest = predicted.saturating_mul(PATIENCE_FACTOR);
        // None if it lies beyond what the clock can tell: then the device is never hung.
        *lock(&self.deadline) = Instant::now().checked_add(self.patience.max(longest));
        if let Some(left) = left {
            self.expect(left);
        }
    }

    /// The device has ended what it was given: what became of it may wait as long as it takes the
    /// database to answer.
    pub(crate) fn leave_device(&self) {
        *lock(&self.deadline) = None;
        self.expect(Duration::ZERO);
    }

    /// The result is on its way to the ledger.
    pub(crate) fn computed(&self) {
        self.is_computed.store(true, Ordering::Relaxed);
    }

    /// The shard should end after this time.
    pub(crate) fn expect(&self, after: Duration) {
        *lock(&self.expected) = Instant::now().checked_add(after);
    }

    /// Seconds until it should end; none if nothing is expected, or if it should have ended: then
    /// the ledger is left with what was told before, and sees how late it is.
    fn still_needs(&self, now: Instant) -> Option<f64> {
        let expected = (*lock(&self.expected))?;
        let left = expected.checked_duration_since(now)?;
        Some(left.as_secs_f64())
    }

    fn is_hung(&self, now: Instant) -> bool {
        lock(&self.deadline).is_some_and(|deadline| now > deadline)
    }
}

/// All attempts held by this worker.
#[derive(Clone, Debug)]
pub(crate) struct Leases {
    held: Arc<Mutex<BTreeMap<i64, Arc<Lease>>>>,
    /// Told when one is let go.
    dropped: Arc<Notify>,
    patience: Duration,
}

impl Leases {
    /// None yet. A device is hung if it does not advance for longer than `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self {
            held: Arc::default(),
            dropped: Arc::default(),
            patience,
        }
    }

    /// Holds an attempt: from now on the heartbeat renews it.
    pub(crate) fn hold(&self, fence: i64) -> Arc<Lease> {
        let lease = Arc::new(Lease {
            fence,
            stop: CancellationToken::new(),
            abandoned: CancellationToken::new(),
            patience: self.patience,
            deadline: Mutex::new(None),
            expected: Mutex::new(None),
            is_computed: AtomicBool::new(false),
        });
        lock(&self.held).insert(fence, Arc::clone(&lease));
        lease
    }

    /// Lets an attempt go, after it ended in the ledger.
    pub(crate) fn drop_lease(&self, lease: &Lease) {
        lock(&self.held).remove(&lease.fence);
        self.dropped.notify_one();
    }

    /// The attempts to renew: all that are held, but those of a hung device; and the seconds that
    /// each still needs, as far as known.
    pub(crate) fn to_renew(&self) -> Vec<(i64, Option<f64>)> {
        let now = Instant::now();
        let held = lock(&self.held);
        held.values()
            .filter(|lease| !lease.is_hung(now))
            .map(|lease| (lease.fence, lease.still_needs(now)))
            .collect()
    }

    /// An attempt whose device has been hung for longer than `lease`, so that it has lapsed.
    pub(crate) fn lapsed(&self, lease: Duration) -> Option<i64> {
        let before = Instant::now().checked_sub(lease)?;
        let held = lock(&self.held);
        let lapsed = held.values().find(|lease| lease.is_hung(before))?;
        Some(lapsed.fence)
    }

    /// Gives all devices so much more time, in which the whole process stood still.
    pub(crate) fn put_off(&self, by: Duration) {
        for lease in lock(&self.held).values() {
            let mut deadline = lock(&lease.deadline);
            *deadline = deadline.and_then(|deadline| deadline.checked_add(by));
        }
    }

    /// Lets those who wait for hung devices wait no longer.
    pub(crate) fn abandon_hung(&self) {
        let now = Instant::now();
        let held = lock(&self.held);
        let hung = held.values().filter(|lease| lease.is_hung(now));
        hung.for_each(|lease| lease.abandoned.cancel());
    }

    /// Returns once only attempts of hung devices are held.
    pub(crate) async fn only_hung(&self) {
        while !self.to_renew().is_empty() {
            self.dropped.notified().await;
        }
    }

    /// Stops those of the attempts `asked` that are no longer among the `live` and not computed.
    /// Attempts held since the question was asked are not judged by its answer.
    pub(crate) fn stop_ended(&self, asked: &[(i64, Option<f64>)], live: &[i64]) {
        let held = lock(&self.held);
        let asked = asked.iter().map(|(fence, _)| fence);
        for fence in asked.filter(|fence| !live.contains(fence)) {
            if let Some(lease) = held.get(fence)
                && !lease.is_stopped()
                && !lease.is_computed.load(Ordering::Relaxed)
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

    const PATIENCE: Duration = Duration::from_mins(5);

    fn fences(renewals: &[(i64, Option<f64>)]) -> Vec<i64> {
        renewals.iter().map(|(fence, _)| *fence).collect()
    }

    #[test]
    fn only_attempts_asked_about_are_stopped() {
        let leases = Leases::new(PATIENCE);
        let (first, second) = (leases.hold(1), leases.hold(2));
        let counted = leases.hold(0);
        counted.computed();
        let asked = leases.to_renew();
        let third = leases.hold(3);
        leases.stop_ended(&asked, &[2]);
        assert!(!counted.is_stopped(), "it has ended by being counted");
        leases.drop_lease(&counted);
        assert!(first.is_stopped());
        assert!(!second.is_stopped());
        assert!(!third.is_stopped(), "it was claimed after the question");
        leases.drop_lease(&first);
        assert_eq!(fences(&leases.to_renew()), [2, 3]);
        assert_eq!(leases.not_held(&[1, 2, 3, 4]), [1, 4].into());
    }

    #[test]
    fn a_hung_device_is_not_renewed() {
        let leases = Leases::new(PATIENCE);
        let lease = leases.hold(1);
        assert!(
            !lease.is_hung(Instant::now() + 10 * PATIENCE),
            "no device works on it yet"
        );
        lease.advance(Duration::from_mins(1), None);
        assert!(!lease.is_hung(Instant::now() + Duration::from_secs(599)));
        assert!(lease.is_hung(Instant::now() + Duration::from_secs(601)));
        lease.advance(Duration::ZERO, None);
        assert!(lease.is_hung(Instant::now() + PATIENCE + Duration::from_secs(1)));
        lease.leave_device();
        assert!(
            !lease.is_hung(Instant::now() + 10 * PATIENCE),
            "it waits for the ledger"
        );
    }

    #[test]
    fn what_is_expected_is_told_with_the_renewal() {
        let leases = Leases::new(PATIENCE);
        let (known, _unknown) = (leases.hold(1), leases.hold(2));
        known.advance(Duration::from_secs(1), Some(Duration::from_secs(1000)));
        match leases.to_renew()[..] {
            [(1, Some(seconds)), (2, None)] => assert!((900.0..=1000.0).contains(&seconds)),
            ref other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_hung_device_lapses_and_is_left_alone() {
        let leases = Leases::new(Duration::ZERO);
        let (hung, other) = (leases.hold(1), leases.hold(2));
        assert_eq!(leases.lapsed(Duration::ZERO), None);
        hung.advance(Duration::ZERO, None);
        while leases.lapsed(Duration::ZERO).is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(leases.lapsed(Duration::ZERO), Some(1));
        leases.abandon_hung();
        hung.abandoned().await;
        assert!(!other.abandoned.is_cancelled());
        assert_eq!(
            leases.lapsed(Duration::from_hours(1)),
            None,
            "not for so long"
        );
        let waiting = tokio::spawn({
            let leases = leases.clone();
            async move { leases.only_hung().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        leases.drop_lease(&other);
        waiting.await.unwrap();
    }

    #[test]
    fn a_process_that_stood_still_has_no_hung_device() {
        let leases = Leases::new(PATIENCE);
        let (working, waiting) = (leases.hold(1), leases.hold(2));
        working.advance(Duration::ZERO, None);
        leases.put_off(2 * PATIENCE);
        assert!(!working.is_hung(Instant::now() + 2 * PATIENCE));
        assert!(working.is_hung(Instant::now() + 4 * PATIENCE));
        assert!(!waiting.is_hung(Instant::now() + 4 * PATIENCE));
    }
}
