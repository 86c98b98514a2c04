//! CUDA, on hosts that have it.
#![allow(unsafe_code)] // Setting an environment variable, see below.

use assay_decoder::{DecoderError, runtime};

/// Makes cuBLAS deterministic, which it is only with a fixed workspace that it reads from the
/// environment. Call it first in `main`.
pub fn fix_workspace() {
    const VARIABLE: &str = "CUBLAS_WORKSPACE_CONFIG";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: no other thread runs yet that could read the environment at the same time.
        unsafe { std::env::set_var(VARIABLE, ":4096:8") };
    }
}

/// Loads libtorch's CUDA backend and counts the GPUs it sees.
///
/// # Errors
/// This host has no CUDA backend or no driver.
pub(crate) fn load() -> Result<usize, DecoderError> {
    runtime::load_cuda()?;
    Ok(usize::try_from(tch::Cuda::device_count()).unwrap_or(0))
}
