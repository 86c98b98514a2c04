//! The devices a worker is told to use.

use std::fmt;
use std::str::FromStr;

/// One device: a group of cores, or one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSpec {
    /// Cores `first ..= last`, counted among the cores this process may use.
    Cpu {
        /// First core.
        first: usize,
        /// Last core.
        last: usize,
    },
    /// A GPU by its CUDA index.
    Cuda(usize),
}

impl DeviceSpec {
    /// Threads that compute on it.
    pub(crate) fn threads(&self) -> usize {
        match self {
            DeviceSpec::Cpu { first, last } => last - first + 1,
            DeviceSpec::Cuda(_) => 1,
        }
    }

    fn overlaps(&self, other: &DeviceSpec) -> bool {
        match (self, other) {
            (
                DeviceSpec::Cpu { first, last },
                DeviceSpec::Cpu {
                    first: other_first,
                    last: other_last,
                },
            ) => first <= other_last && other_first <= last,
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Cpu { first, last } if first == last => write!(f, "cpu:{first}"),
            DeviceSpec::Cpu { first, last } => write!(f, "cpu:{first}-{last}"),
            DeviceSpec::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

/// A device specification that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeviceError {
    /// Not of the form `cpu:0`, `cpu:0-1` or `cuda:0`.
    #[error("{0:?} is not a device: write cpu:0, cpu:0-1 or cuda:0, several separated by commas")]
    Malformed(String),
    /// Two devices share a core or a GPU.
    #[error("{0} and {1} overlap; every core and every GPU belongs to one device")]
    Overlap(DeviceSpec, DeviceSpec),
    /// More cores than the process may use.
    #[error("{device} names core {core}, but this process may use {available} cores (0 to {})", available - 1)]
    NoSuchCore {
        /// The device.
        device: DeviceSpec,
        /// The core it names.
        core: usize,
        /// Cores there are.
        available: usize,
    },
    /// libtorch has one thread count per process.
    #[error("{0} and {1} have different numbers of threads; start one worker for each")]
    UnequalThreads(DeviceSpec, DeviceSpec),
}

impl FromStr for DeviceSpec {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || DeviceError::Malformed(text.to_owned());
        let number = |digits: &str| digits.parse::<usize>().map_err(|_| malformed());
        match text.split_once(':') {
            Some(("cpu", cores)) => {
                let (first, last) = cores.split_once('-').unwrap_or((cores, cores));
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(malformed());
                }
                Ok(DeviceSpec::Cpu { first, last })
            }
            Some(("cuda", index)) => Ok(DeviceSpec::Cuda(number(index)?)),
            _ => Err(malformed()),
        }
    }
}

/// Parses a list of devices for a process that may use `cores` cores.
///
/// # Errors
/// See [`DeviceError`].
pub(crate) fn parse_devices(list: &str, cores: usize) -> Result<Vec<DeviceSpec>, DeviceError> {
    let devices: Vec<DeviceSpec> = list
        .split(',')
        .map(|item| item.trim().parse())
        .collect::<Result<_, _>>()?;
    for (index, device) in devices.iter().enumerate() {
        if let DeviceSpec::Cpu { last, .. } = device
            && *last >= cores
        {
            return Err(DeviceError::NoSuchCore {
                device: device.clone(),
                core: *last,
                available: cores,
            });
        }
        for other in &devices[..index] {
            if device.overlaps(other) {
                return Err(DeviceError::Overlap(other.clone(), device.clone()));
            }
            if device.threads() != other.threads() {
                return Err(DeviceError::UnequalThreads(other.clone(), device.clone()));
            }
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::{DeviceError, parse_devices};

    #[test]
    fn lists_parse_and_print_alike() {
        for list in [
            "cpu:0",
            "cpu:0-3",
            "cpu:0,cpu:1",
            "cuda:0,cuda:7",
            "cuda:0,cpu:0",
        ] {
            let devices = parse_devices(list, 4).unwrap();
            let printed: Vec<String> = devices.iter().map(ToString::to_string).collect();
            assert_eq!(printed.join(","), list);
        }
        assert_eq!(parse_devices(" cpu:0 , cpu:1", 2).unwrap().len(), 2);
    }

    #[test]
    fn wrong_lists_are_refused() {
        for list in [
            "",
            "cpu",
            "cpu:",
            "cpu:x",
            "cpu:1-0",
            "gpu:0",
            "cuda:-1",
            "cpu:0,,cpu:1",
        ] {
            let error = parse_devices(list, 4).unwrap_err();
            assert!(
                matches!(error, DeviceError::Malformed(_)),
                "{list}: {error}"
            );
        }
        let overlap = parse_devices("cpu:0-1,cpu:1-2", 4).unwrap_err();
        assert!(matches!(overlap, DeviceError::Overlap(..)), "{overlap}");
        let unequal = parse_devices("cpu:0,cpu:1-2", 4).unwrap_err();
        assert!(
            matches!(unequal, DeviceError::UnequalThreads(..)),
            "{unequal}"
        );
        let missing = parse_devices("cpu:4", 4).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "cpu:4 names core 4, but this process may use 4 cores (0 to 3)"
        );
    }
}
