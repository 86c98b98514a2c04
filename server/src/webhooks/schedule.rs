//! When a delivery that was not taken is tried again: a pure function.

use std::time::Duration;

/// Tries of a delivery, before it has failed.
const TRIES: u32 = 10;
/// How much longer than the pause before it each pause is.
const FACTOR: u32 = 4;
const LONGEST: Duration = Duration::from_hours(6);

/// The pause after so many `tries`; none if there is no further one. `first` is the longest pause
/// after the first try. `jitter`, from 0 to 1, makes the pause shorter by up to a half: a receiver
/// that comes back is not called by everybody at once.
pub(super) fn pause(first: Duration, tries: u32, jitter: f64) -> Option<Duration> {
    if tries >= TRIES {
        return None;
    }
    let longer = FACTOR.saturating_pow(tries.saturating_sub(1));
    let whole = first.saturating_mul(longer).min(LONGEST);
    Some(whole.mul_f64(1.0 - jitter / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_grow_to_their_bound_and_end() {
        let pauses: Vec<u64> = (1..)
            .map_while(|tries| pause(FIRST, tries, 0.0))
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [5, 20, 80, 320, 1280, 5120, 20480, 21600, 21600]);
        // `docs/webhooks.md` says so.
        assert_eq!(pauses.iter().sum::<u64>() / 3600, 19);
    }

    #[test]
    fn jitter_makes_them_shorter_by_a_half_at_most() {
        let pause = |jitter| pause(FIRST, 2, jitter).unwrap();
        assert_eq!(pause(0.5), Duration::from_secs(15));
        assert_eq!(pause(1.0), Duration::from_secs(10));
    }

    #[test]
    fn no_setting_is_too_long() {
        let longest = pause(Duration::MAX, TRIES - 1, 0.0);
        assert_eq!(longest, Some(LONGEST));
    }
}
