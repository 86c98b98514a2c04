//! How long to wait before a child that died is started again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// A child that ran for this long was healthy.
const HEALTHY: Duration = Duration::from_mins(1);

/// Doubles from half a second to 30 s, and starts over after a minute of health.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The pause after a run of this length.
    pub(super) fn after(&mut self, run: Duration) -> Duration {
        if run >= HEALTHY {
            self.next = FIRST;
        }
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_limit_and_start_over_after_health() {
        let mut backoff = Backoff::new();
        let short = Duration::from_secs(1);
        let pauses: Vec<_> = (0..9).map(|_| backoff.after(short).as_millis()).collect();
        assert_eq!(
            pauses,
            [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]
        );
        assert_eq!(backoff.after(HEALTHY), FIRST);
        assert_eq!(backoff.after(HEALTHY.saturating_sub(short)), FIRST * 2);
    }
}
