//! Process and thread settings of libtorch.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use assay_api::Dtype;
use tch::{Device, Tensor};

use crate::torch::{self, Output};
use crate::{DecoderError, kind_of};

/// Prepares the calling thread to own a device with `threads` threads of computation.
///
/// Call it on every device thread before its first tensor: libtorch keeps the number of threads
/// per calling thread. The first call in a process also turns off TF32, reduced-precision
/// accumulation and nondeterministic algorithms for all of it.
///
/// # Errors
/// When libtorch does not run the number of threads asked for.
pub fn init(threads: usize) -> Result<(), DecoderError> {
    // The settings are plain variables in libtorch, so only one thread may write them.
    static EXACT: OnceLock<Result<(), String>> = OnceLock::new();
    EXACT
        .get_or_init(|| torch::exact().map_err(|error| error.to_string()))
        .clone()
        .map_err(DecoderError::Torch)?;

    // The first question for the number makes libtorch set this thread to the number last set by
    // any thread; only then does this thread's own number stay.
    let before = tch::get_num_threads();
    let asked = i32::try_from(threads).ok().filter(|&threads| threads > 0);
    if let Some(asked) = asked {
        tch::set_num_threads(asked);
    }
    let actual = asked.map_or(before, |_| tch::get_num_threads());
    let actual = usize::try_from(actual).unwrap_or(0);
    if actual == threads {
        Ok(())
    } else {
        Err(DecoderError::Threads {
            asked: threads,
            actual,
        })
    }
}

/// The version of libtorch, such as `2.11.0`.
pub fn libtorch_version() -> &'static str {
    torch::version()
}

/// The processor as far as it decides which kernels run, and so which bits come out: vendor,
/// libtorch's kernel level, and what oneDNN uses beyond it, such as
/// `AuthenticAMD AVX512 avx512_bf16`.
pub fn cpu_capability() -> String {
    const BEYOND: [&str; 4] = ["avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16"];
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim())
    };
    let flags: Vec<&str> = field("flags")
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let mut parts = vec![
        field("vendor_id").unwrap_or("unknown"),
        torch::cpu_capability(),
    ];
    parts.extend(BEYOND.iter().filter(|flag| flags.contains(flag)));
    parts.join(" ")
}

/// Rows, columns and inner size of the products that dtypes are compared by: some ten milliseconds
/// on a core, and enough to fill a GPU.
const PRODUCT: i64 = 1024;

/// Whether products of matrices take less time in `dtype` than in float32 on this device. Measured:
/// a processor may know a dtype and still be slow in it, and libtorch computes in dtypes that a
/// device does not know at all. Takes a second at most where `dtype` is not emulated.
///
/// # Errors
/// The device has no memory for two small matrices, or does not know the dtype.
pub fn is_faster(dtype: Dtype, device: Device) -> Result<bool, DecoderError> {
    Ok(product_time(dtype, device)? < product_time(Dtype::Float32, device)?)
}

/// The shortest of three times, after a product whose time is not taken.
fn product_time(dtype: Dtype, device: Device) -> Result<Duration, DecoderError> {
    let _guard = tch::no_grad_guard();
    let matrix = || Tensor::f_ones([PRODUCT, PRODUCT], (kind_of(dtype), device));
    let (x, weight, mut out) = (matrix()?, matrix()?, matrix()?);
    let mut shortest = Duration::MAX;
    for round in 0..4 {
        let started = Instant::now();
        torch::linear(&x, &weight, &mut out, Output::Replace)?;
        if let Device::Cuda(index) = device {
            tch::Cuda::synchronize(i64::try_from(index).unwrap_or_default());
        }
        if round > 0 {
            shortest = shortest.min(started.elapsed());
        }
    }
    Ok(shortest)
}

/// Loads libtorch's CUDA backend, which lies beside `libtorch_cpu.so` on hosts that have one.
///
/// Programs are linked with `libtorch_cpu.so` alone, so that one binary serves hosts with and
/// without a GPU; the CUDA library registers itself when it is loaded. Call this first in `main`:
/// it sets `CUBLAS_WORKSPACE_CONFIG`, without which cuBLAS is not deterministic and libtorch
/// refuses to use it, and the environment may be changed only while there is one thread.
///
/// # Errors
/// When this libtorch has no CUDA backend, one of its libraries is missing, or threads already
/// run while the variable is not set.
pub fn load_cuda() -> Result<(), DecoderError> {
    let library = cuda_library(&libtorch_cpu_path()?)?;
    if std::env::var_os(CUBLAS_WORKSPACE.0).is_none() {
        let alone = fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1);
        if !alone {
            let (name, value) = CUBLAS_WORKSPACE;
            return Err(DecoderError::Cuda(format!(
                "threads already run, so {name} can no longer be set; \
                 start the program with {name}={value}"
            )));
        }
        torch::set_environment_alone(CUBLAS_WORKSPACE);
    }
    torch::load_globally(&library).map_err(DecoderError::Cuda)
}

/// The first of NCCL's names that the dynamic linker finds. None if it is not installed.
pub fn nccl_library() -> Option<&'static str> {
    ["libnccl.so.2", "libnccl.so"]
        .into_iter()
        .find(|name| torch::load(Path::new(name), libc::RTLD_LAZY | libc::RTLD_LOCAL).is_ok())
}

/// A fixed workspace of eight buffers of 4096 KiB, the larger of the two settings with which
/// cuBLAS gives equal bits from run to run.
const CUBLAS_WORKSPACE: (&str, &str) = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8");

fn cuda_library(libtorch_cpu: &Path) -> Result<PathBuf, DecoderError> {
    let library = libtorch_cpu.with_file_name("libtorch_cuda.so");
    if library.exists() {
        return Ok(library);
    }
    Err(DecoderError::Cuda(format!(
        "there is no {}; install libtorch {} with its CUDA packages",
        library.display(),
        libtorch_version(),
    )))
}

/// Where the `libtorch_cpu.so` of this process lies, by the kernel's list of mappings.
fn libtorch_cpu_path() -> Result<PathBuf, DecoderError> {
    let maps = fs::read_to_string("/proc/self/maps")
        .map_err(|error| DecoderError::Cuda(format!("/proc/self/maps: {error}")))?;
    maps.lines()
        .filter_map(|line| line.find('/').map(|start| &line[start..]))
        .find(|path| path.ends_with("/libtorch_cpu.so"))
        .map(PathBuf::from)
        .ok_or_else(|| DecoderError::Cuda("libtorch_cpu.so is not loaded".to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    #[test]
    fn each_thread_keeps_its_own_number_of_threads() {
        let barrier = Arc::new(Barrier::new(2));
        let devices = [1, 2].map(|threads| {
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || {
                init(threads).unwrap();
                barrier.wait();
                // A parallel loop is where libtorch would take over another thread's number.
                let ones = tch::Tensor::ones([1 << 20], (tch::Kind::Int64, tch::Device::Cpu));
                assert_eq!(i64::try_from(ones.sum(tch::Kind::Int64)).unwrap(), 1 << 20);
                barrier.wait();
                assert_eq!(usize::try_from(tch::get_num_threads()), Ok(threads));
            })
        });
        for device in devices {
            device.join().unwrap();
        }
    }

    #[test]
    fn no_threads_is_refused() {
        let error = init(0).unwrap_err();
        assert!(
            matches!(error, DecoderError::Threads { asked: 0, .. }),
            "{error}"
        );
    }

    #[test]
    fn libtorch_is_the_version_that_tch_is_made_for() {
        assert!(
            libtorch_version().starts_with("2.11.0"),
            "{}",
            libtorch_version()
        );
        assert!(cpu_capability().contains(torch::cpu_capability()));
    }

    #[test]
    fn the_cuda_library_is_looked_for_beside_the_cpu_library() {
        let path = libtorch_cpu_path().unwrap();
        assert!(path.is_file(), "{}", path.display());
        assert!(path.parent().unwrap().join("libc10.so").exists());

        let directory = tempfile::tempdir().unwrap();
        let cpu = directory.path().join("libtorch_cpu.so");
        let error = cuda_library(&cpu).unwrap_err();
        assert!(
            error.to_string().contains("libtorch_cuda.so; install"),
            "{error}"
        );
        let cuda = directory.path().join("libtorch_cuda.so");
        fs::write(&cuda, "").unwrap();
        assert_eq!(cuda_library(&cpu).unwrap(), cuda);
    }
}
