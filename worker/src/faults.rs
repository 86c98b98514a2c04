//! Misbehaviour on demand, by which tests show that the service survives it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use assay_api::ErrorCode;
use assay_store::ShardOutcome;

use crate::failure::Failure;

/// How a worker misbehaves: a list of `delay=SECONDS`, `off-by-one`, `fail`, `hang=N:PATH`.
#[derive(Debug, Default)]
pub struct Faults {
    /// As it was given.
    list: String,
    /// Waits before each micro-batch.
    delay: Duration,
    /// Adds a unit to a sum of each shard.
    off_by_one: bool,
    /// Fails each micro-batch.
    fail: bool,
    /// Blocks for ever in this micro-batch of the process (0: as it loads a model), unless the file
    /// exists; it is made.
    hang: Option<(u64, PathBuf)>,
    micro_batches: AtomicU64,
}

impl Clone for Faults {
    fn clone(&self) -> Self {
        Self {
            list: self.list.clone(),
            delay: self.delay,
            off_by_one: self.off_by_one,
            fail: self.fail,
            hang: self.hang.clone(),
            micro_batches: AtomicU64::new(0),
        }
    }
}

impl Faults {
    /// Says that it will misbehave, if so.
    pub(crate) fn warn(&self) {
        if !self.list.is_empty() {
            tracing::warn!(faults = %self, "MISBEHAVING, as --fault asks for: its results may be wrong");
        }
    }

    /// Misbehaves before a micro-batch.
    ///
    /// # Errors
    /// `fail`.
    pub(crate) fn before_micro_batch(&self) -> Result<(), Failure> {
        let number = self.micro_batches.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        self.hang_at(number);
        if self.fail {
            return Err(Failure::error(ErrorCode::ComputeFailed, "--fault fail"));
        }
        Ok(())
    }

    /// Misbehaves before a model is loaded.
    pub(crate) fn before_load(&self) {
        self.hang_at(0);
    }

    fn hang_at(&self, number: u64) {
        if let Some((wanted, marker)) = &self.hang
            && *wanted == number
            && std::fs::File::create_new(marker).is_ok()
        {
            loop {
                std::thread::park();
            }
        }
    }

    /// Misbehaves at the end of a shard.
    pub(crate) fn after_shard(&self, outcome: &mut ShardOutcome) {
        if self.off_by_one
            && let Some(sum) = outcome.sums.first_mut()
        {
            sum.units += 1;
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.list)
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let mut faults = Self {
            list: list.to_owned(),
            ..Self::default()
        };
        for item in list.split(',') {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match (name, value) {
                ("off-by-one", "") => faults.off_by_one = true,
                ("fail", "") => faults.fail = true,
                ("delay", seconds) => {
                    let seconds = seconds.parse().ok();
                    faults.delay = seconds
                        .and_then(|s| Duration::try_from_secs_f64(s).ok())
                        .ok_or_else(|| format!("{item:?}: write delay=SECONDS"))?;
                }
                ("hang", place) => {
                    let place = place.split_once(':');
                    faults.hang = place
                        .and_then(|(n, path)| Some((n.parse().ok()?, path.into())))
                        .ok_or_else(|| format!("{item:?}: write hang=N:PATH"))?
                        .into();
                }
                _ => {
                    return Err(format!(
                        "{item:?} is no fault: delay=SECONDS, off-by-one, fail, hang=N:PATH"
                    ));
                }
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed() {
        let faults: Faults = "delay=0.5,off-by-one,fail,hang=3:/a:b".parse().unwrap();
        assert_eq!(faults.delay, Duration::from_millis(500));
        assert!(faults.off_by_one && faults.fail);
        assert_eq!(faults.hang, Some((3, "/a:b".into())));
        assert_eq!(faults.to_string(), "delay=0.5,off-by-one,fail,hang=3:/a:b");
        for list in [
            "",
            "delay",
            "delay=-1",
            "hang=x:/a",
            "hang=1",
            "fail=1",
            "off",
        ] {
            assert!(list.parse::<Faults>().is_err(), "{list}");
        }
    }
}
