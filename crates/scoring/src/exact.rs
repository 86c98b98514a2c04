//! Exact sums: integers in units of 2^-32 nat, whose addition has no order.

use std::fmt;
use std::iter::Sum;
use std::num::ParseIntError;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units of one nat.
pub const UNITS_PER_NAT: f64 = 4_294_967_296.0;
/// The first magnitude, in nats, that no longer fits 64 bits of units.
const LIMIT_NATS: f64 = 2_147_483_648.0;

/// A negative log-likelihood that cannot be summed exactly.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum NllError {
    /// NaN or infinite.
    #[error(
        "the NLL is {0}, not a finite number: the model's weights or logits overflow this dtype"
    )]
    NonFinite(f64),
    /// 2^31 nat or more.
    #[error("the NLL {0} does not fit: an exact sum takes less than 2^31 nat a token")]
    OutOfRange(f64),
    /// The sum of one cluster within one shard reached 2^31 nat.
    #[error("the NLLs of cluster {cluster} add up to 2^31 nat or more within one shard")]
    SumOutOfRange {
        /// The cluster.
        cluster: u32,
    },
}

/// A negative log-likelihood in units of 2^-32 nat, rounded half to even.
///
/// # Errors
/// [`NllError::NonFinite`] and, from 2^31 nat on either side, [`NllError::OutOfRange`].
pub fn to_units(nll: f64) -> Result<i64, NllError> {
    if !nll.is_finite() {
        return Err(NllError::NonFinite(nll));
    }
    if nll.abs() >= LIMIT_NATS {
        return Err(NllError::OutOfRange(nll));
    }
    // The product is exact (a power of two) and below 2^63, so the cast only changes the type.
    #[allow(clippy::cast_possible_truncation)]
    let units = (nll * UNITS_PER_NAT).round_ties_even() as i64;
    Ok(units)
}

/// A sum of negative log-likelihoods in units of 2^-32 nat.
///
/// Displays, parses and serialises (as a string) as the decimal integer of units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExactSum(i128);

impl ExactSum {
    /// The sum in nats, correctly rounded to the nearest double.
    pub fn nats(self) -> f64 {
        // The cast rounds to nearest even, the division by a power of two is exact.
        self.0 as f64 / UNITS_PER_NAT
    }
}

impl From<i64> for ExactSum {
    fn from(units: i64) -> Self {
        Self(units.into())
    }
}

impl Add for ExactSum {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for ExactSum {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl AddAssign for ExactSum {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for ExactSum {
    fn sum<I: Iterator<Item = Self>>(sums: I) -> Self {
        sums.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for ExactSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ExactSum {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl Serialize for ExactSum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExactSum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|e| de::Error::custom(format!("{text:?} is not an exact sum: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_even() {
        let unit = 1.0 / UNITS_PER_NAT;
        for (units, rounded) in [
            (0.5, 0),
            (1.5, 2),
            (2.5, 2),
            (-0.5, 0),
            (-1.5, -2),
            (0.75, 1),
        ] {
            assert_eq!(to_units(units * unit), Ok(rounded), "{units}");
        }
        assert_eq!(to_units(1.0), Ok(1 << 32));
        assert_eq!(to_units(f64::from_bits(1)), Ok(0));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let largest = LIMIT_NATS.next_down();
        assert_eq!(to_units(largest), Ok(i64::MAX - 1023));
        assert_eq!(to_units(-largest), Ok(-(i64::MAX - 1023)));
        assert_eq!(to_units(LIMIT_NATS), Err(NllError::OutOfRange(LIMIT_NATS)));
        assert_eq!(
            to_units(-LIMIT_NATS),
            Err(NllError::OutOfRange(-LIMIT_NATS))
        );
        assert_eq!(to_units(f64::MAX), Err(NllError::OutOfRange(f64::MAX)));
        for nll in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(to_units(nll), Err(NllError::NonFinite(_))));
        }
    }

    #[test]
    fn travels_as_a_decimal_string() {
        let sum: ExactSum = "170141183460469231731687303715884105727".parse().unwrap();
        let json = serde_json::to_string(&sum).unwrap();
        assert_eq!(json, "\"170141183460469231731687303715884105727\"");
        assert_eq!(serde_json::from_str::<ExactSum>(&json).unwrap(), sum);
        assert!(serde_json::from_str::<ExactSum>("\"1.5\"").is_err());
        assert_eq!(ExactSum::from(-3).to_string(), "-3");
    }
}
