//! Devices of a simulation: how fast they are and when they are there.

/// A device. Times are seconds from the start of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedDevice {
    /// Devices of one kind share the rate that the ledger learns.
    pub kind: u32,
    /// From which second on it is how fast, in floating-point operations per second: ascending,
    /// the first from 0. Fast as the last one says for ever after.
    pub speeds: Vec<(f64, f64)>,
    /// When it appears.
    pub joins: f64,
    /// When it is gone without a word, if ever.
    pub leaves: Option<f64>,
}

impl SimulatedDevice {
    /// A device that is there all the time and equally fast.
    pub fn steady(kind: u32, flops_per_second: f64) -> Self {
        Self {
            kind,
            speeds: vec![(0.0, flops_per_second)],
            joins: 0.0,
            leaves: None,
        }
    }

    /// Its speeds as (from, to, operations per second).
    fn stretches(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let ends = self.speeds.iter().skip(1).map(|&(from, _)| from);
        let stretches = self.speeds.iter().zip(ends.chain([f64::INFINITY]));
        stretches.map(|(&(from, speed), to)| (from, to, speed))
    }

    /// When `flops` operations are done that begin at `start`; infinite if never.
    pub(super) fn end(&self, start: f64, flops: f64) -> f64 {
        let mut left = flops;
        for (from, to, speed) in self.stretches() {
            let from = from.max(start);
            if to <= from {
                continue;
            }
            let end = if left <= 0.0 {
                from
            } else {
                from + left / speed
            };
            if end <= to {
                return end;
            }
            left -= (to - from) * speed;
        }
        f64::INFINITY
    }

    /// Operations done from `start` to `end`.
    pub(super) fn work(&self, start: f64, end: f64) -> f64 {
        self.stretches()
            .map(|(from, to, speed)| (to.min(end) - from.max(start)).max(0.0) * speed)
            .sum()
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // small whole numbers
mod tests {
    use super::*;

    #[test]
    fn speeds_change_in_the_middle_of_work() {
        let device = SimulatedDevice {
            speeds: vec![(0.0, 10.0), (4.0, 0.0), (6.0, 5.0)],
            ..SimulatedDevice::steady(0, 0.0)
        };
        assert_eq!(device.end(1.0, 20.0), 3.0);
        assert_eq!(device.end(1.0, 30.0), 4.0);
        assert_eq!(device.end(1.0, 40.0), 8.0);
        assert_eq!(device.end(7.0, 5.0), 8.0);
        assert_eq!(device.end(7.0, 0.0), 7.0);
        assert_eq!(device.work(1.0, 3.0), 20.0);
        assert_eq!(device.work(1.0, 8.0), 40.0);
        assert_eq!(device.work(4.5, 5.5), 0.0);
        assert_eq!(SimulatedDevice::steady(0, 0.0).end(0.0, 1.0), f64::INFINITY);
    }
}
