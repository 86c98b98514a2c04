//! The memory that a device may use.

use assay_api::ErrorCode;

use crate::devices::DeviceSpec;
use crate::failure::Failure;

/// How much memory a device may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    /// So many bytes for the activations of a micro-batch.
    Fixed(u64),
    /// What the host has available, divided among this many devices.
    Host {
        /// Devices of this worker that compute in the host's memory.
        devices: u64,
    },
    /// Whatever the device has: it says so when there is no more.
    Device,
}

impl Budget {
    /// The budget of one of the `devices`, `fixed` by the settings or not.
    pub(crate) fn of(device: &DeviceSpec, devices: &[DeviceSpec], fixed: Option<u64>) -> Self {
        let on_host = |device: &&DeviceSpec| matches!(device, DeviceSpec::Cpu { .. });
        match (fixed, device) {
            (Some(bytes), _) => Self::Fixed(bytes),
            (None, DeviceSpec::Cuda(_)) => Self::Device,
            (None, DeviceSpec::Cpu { .. }) => Self::Host {
                devices: devices.iter().filter(on_host).count().max(1) as u64,
            },
        }
    }

    /// Bytes that the activations of a micro-batch may take now. None if nothing is known.
    pub(crate) fn of_micro_batch(self) -> Option<u64> {
        match self {
            Self::Fixed(bytes) => Some(bytes),
            Self::Host { devices } => Some(assay_process::memory::available()? / devices),
            Self::Device => None,
        }
    }

    /// Refuses weights that the host has no room for, before they are read.
    ///
    /// # Errors
    /// [`ErrorCode::OutOfMemory`]; another worker may have more.
    pub(crate) fn check_weights(self, bytes: u64) -> Result<(), Failure> {
        if !matches!(self, Self::Host { .. }) {
            return Ok(());
        }
        match assay_process::memory::available() {
            Some(available) if bytes > available => {
                let detail = format!(
                    "the weights take {} MB of memory and {} MB are to be had; compute in \
                     bfloat16, or give the worker more memory or fewer devices",
                    bytes / 1_000_000,
                    available / 1_000_000
                );
                Err(Failure::error(ErrorCode::OutOfMemory, detail))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::parse_devices;

    #[test]
    fn devices_of_the_host_share_its_memory() {
        let devices = parse_devices("cpu:0,cuda:0,cpu:1", 2).unwrap();
        let of = |index: usize, fixed| Budget::of(&devices[index], &devices, fixed);
        assert!(matches!(of(0, None), Budget::Host { devices: 2 }));
        assert!(matches!(of(1, None), Budget::Device));
        assert_eq!(of(1, Some(7)).of_micro_batch(), Some(7));
        assert!(of(2, None).of_micro_batch().unwrap() > 0);
    }

    #[test]
    fn weights_that_cannot_fit_are_refused() {
        let budget = Budget::Host { devices: 1 };
        assert!(budget.check_weights(1 << 20).is_ok());
        let refused = budget.check_weights(1 << 60).unwrap_err();
        assert!(refused.is_out_of_memory());
        assert!(Budget::Device.check_weights(1 << 60).is_ok());
    }
}
