//! How fast a device is, as it has measured itself.

use std::time::Duration;

use assay_store::DeviceRate;

/// The part of the newest measurement in the rate: shards differ, and so do moments.
const NEWEST: f64 = 0.5;

/// Planned floating-point operations per second, for jobs of one key.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    measured: Option<(String, f64)>,
}

impl Rate {
    /// Takes a shard of a job of this key into account.
    pub(crate) fn learn(&mut self, key: &str, flops: f64, seconds: f64) {
        let rate = flops / seconds;
        if !rate.is_finite() || rate <= 0.0 {
            return;
        }
        let rate = match &self.measured {
            Some((before, known)) if before == key => known + NEWEST * (rate - known),
            _ => rate,
        };
        self.measured = Some((key.to_owned(), rate));
    }

    /// The rate for jobs of this key, if one was measured last.
    pub(crate) fn of(&self, key: &str) -> Option<f64> {
        let (measured, rate) = self.measured.as_ref()?;
        (measured == key).then_some(*rate)
    }

    /// As a claim tells it.
    pub(crate) fn told(&self) -> Option<DeviceRate<'_>> {
        let (key, flops_per_second) = self.measured.as_ref()?;
        Some(DeviceRate {
            key,
            flops_per_second: *flops_per_second,
        })
    }
}

/// The time that an amount of work takes at so much of it a second.
pub(crate) fn duration(amount: f64, rate: f64) -> Duration {
    Duration::try_from_secs_f64(amount / rate).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_one_key() {
        let mut rate = Rate::default();
        assert!(rate.told().is_none());
        rate.learn("a", 10.0, 0.0);
        assert!(rate.told().is_none(), "no time is no measurement");
        rate.learn("a", 10.0, 1.0);
        rate.learn("a", 30.0, 1.0);
        assert_eq!(rate.of("a"), Some(20.0));
        assert_eq!(rate.of("b"), None);
        rate.learn("b", 8.0, 2.0);
        assert_eq!((rate.of("a"), rate.of("b")), (None, Some(4.0)));
        assert_eq!(duration(8.0, 4.0), Duration::from_secs(2));
        assert_eq!(duration(1.0, 0.0), Duration::MAX);
    }
}
