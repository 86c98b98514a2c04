//! Device kinds: what must be equal for two devices to give equal bits.

use std::fs;

use assay_decoder::runtime;

use crate::devices::DeviceSpec;

/// Names the device kind: backend, model or instruction set, threads, libtorch, build.
/// Two devices of one name run the same kernels in the same order.
pub(crate) fn device_kind(device: &DeviceSpec) -> String {
    let model = match device {
        DeviceSpec::Cpu { .. } => {
            format!(
                "cpu/{}/threads-{}",
                runtime::cpu_capability(),
                device.threads()
            )
        }
        DeviceSpec::Cuda(index) => format!("cuda/{}", gpu_model(*index)),
    };
    let libtorch = runtime::libtorch_version();
    format!(
        "{model}/libtorch {libtorch}/assay {}",
        env!("CARGO_PKG_VERSION")
    )
    .replace(' ', "-")
}

/// The GPU's model as its driver names it.
fn gpu_model(index: usize) -> String {
    let mut gpus: Vec<_> = fs::read_dir("/proc/driver/nvidia/gpus")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("information")))
        .collect();
    // Directories are named by bus address, the order of CUDA_DEVICE_ORDER=PCI_BUS_ID.
    gpus.sort();
    let information = gpus
        .get(index)
        .and_then(|path| fs::read_to_string(path).ok());
    information
        .and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("Model:"))
                .map(|model| model.trim().to_owned())
        })
        .unwrap_or_else(|| "unknown".to_owned())
}
