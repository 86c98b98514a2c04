//! How much a device claims at once, and when it repeats what another one is slow with.
//!
//! Pure rules: the ledger applies them to its rows, the simulation to its own. They decide who
//! computes what and when, never what is planned. (An adaptive job is computed in the dtype of who
//! claims it.)

/// Seconds of work that a device claims at once at most. Long against a claim (some
/// milliseconds), short against a lease.
const CLAIM_SECONDS: f64 = 2.0;
/// A device that is slower than this part of the mean leaves large shards to others.
const SLOW: f64 = 0.5;
/// A copy is worth its work if it takes less than this part of what the running attempt still
/// needs.
pub const COPY_GAIN: f64 = 0.8;

/// What a claim is sized by. Rates are planned floating-point operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Supply {
    /// The device's rate; none before it has computed anything of the kind.
    pub rate: Option<f64>,
    /// The rate of all devices that are there, this one included.
    pub pool_rate: f64,
    /// How many these are.
    pub devices: u32,
    /// Operations of the job that are not counted yet.
    pub remaining: f64,
}

/// What to claim: the largest queued shards of at most `largest` operations each, one after the
/// other until they come to `total`, at least one. If all are larger than `largest`: the smallest
/// one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// Operations of a shard, at most.
    pub largest: f64,
    /// Operations in all, about.
    pub total: f64,
}

impl Supply {
    /// What to claim.
    ///
    /// Guided self-scheduling (Polychronopoulos and Kuck 1987) with half of the device's fair part
    /// of what remains, so that claims become small towards the end. A device of which nothing is
    /// known takes the smallest shard, by which its rate is found. A slow one takes no shard that
    /// would keep it busy beyond the time that all together need for the rest.
    pub fn quota(&self) -> Quota {
        let Some(rate) = self.rate else {
            return Quota {
                largest: 0.0,
                total: 0.0,
            };
        };
        // The device may be the first of its kind in the pool's account.
        let pool = self.pool_rate.max(rate);
        let fair = self.remaining * rate / pool;
        let mean = pool / f64::from(self.devices.max(1));
        Quota {
            largest: if rate < SLOW * mean {
                fair
            } else {
                f64::INFINITY
            },
            total: (rate * CLAIM_SECONDS).min(fair / 2.0),
        }
    }
}

/// Seconds that a running attempt still needs, `now`, seen from outside: until it was expected to
/// end, and once that has passed, as long as it is late already. Without an expectation, as long
/// as it has run. All in seconds on one clock.
pub fn still_needs(now: f64, started: f64, expected: Option<f64>) -> f64 {
    expected.map_or(now - started, |expected| (expected - now).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Supply = Supply {
        rate: Some(10.0),
        pool_rate: 40.0,
        devices: 4,
        remaining: 1000.0,
    };

    #[test]
    fn quotas_by_hand() {
        let unlimited = f64::INFINITY;
        let quota = |supply: Supply| {
            let Quota { largest, total } = supply.quota();
            (largest, total)
        };
        assert_eq!(quota(EVEN), (unlimited, 20.0), "two seconds");
        let end = Supply {
            remaining: 80.0,
            ..EVEN
        };
        assert_eq!(quota(end), (unlimited, 10.0), "half of a quarter of 80");
        let slow = Supply {
            rate: Some(2.0),
            ..EVEN
        };
        assert_eq!(quota(slow), (50.0, 4.0));
        let unknown = Supply { rate: None, ..EVEN };
        assert_eq!(quota(unknown), (0.0, 0.0));
        let first = Supply {
            pool_rate: 0.0,
            devices: 0,
            ..EVEN
        };
        assert_eq!(quota(first), (unlimited, 20.0));
    }

    #[test]
    #[allow(clippy::float_cmp)] // small whole numbers
    fn what_is_late_is_expected_to_stay_late() {
        let needs = [
            still_needs(10.0, 4.0, Some(12.0)),
            still_needs(15.0, 4.0, Some(12.0)),
            still_needs(15.0, 4.0, None),
        ];
        assert_eq!(needs, [2.0, 3.0, 11.0]);
    }
}
