//! What can go wrong between a checkpoint and its numbers.

use assay_api::ErrorCode;
use assay_checkpoint::CheckpointError;
use tch::TchError;

/// Why a model could not be loaded, or a micro-batch not scored.
#[derive(Debug, thiserror::Error)]
pub enum DecoderError {
    /// A weight cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The device has too little memory.
    #[error("out of memory: {0}; use smaller windows or a device with more memory")]
    OutOfMemory(String),
    /// oneDNN could not prepare a product, most likely for want of memory. It makes its kernels
    /// once in a process and keeps a failure for good, so nothing more can be computed in it.
    #[error(
        "out of memory: oneDNN says {0:?} and cannot be used any more in this process; give the \
         worker more memory or fewer devices"
    )]
    Broken(String),
    /// libtorch refuses an operation.
    #[error("libtorch: {0}")]
    Torch(String),
    /// A sequence that no plan of this model contains.
    #[error("sequence {sequence} of the micro-batch: {detail}; plan the job again")]
    Sequence {
        /// Index in the micro-batch.
        sequence: usize,
        /// What is wrong with it.
        detail: String,
    },
    /// libtorch has no CUDA backend to load, or it does not load.
    #[error("CUDA cannot be used: {0}")]
    Cuda(String),
    /// The number of threads asked for does not take effect.
    #[error(
        "libtorch runs {actual} threads instead of {asked}; give each device at least one core"
    )]
    Threads {
        /// Threads asked for.
        asked: usize,
        /// Threads in effect.
        actual: usize,
    },
}

impl DecoderError {
    /// The code under which a client learns of it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Checkpoint(error) => error.code(),
            Self::OutOfMemory(_) | Self::Broken(_) => ErrorCode::OutOfMemory,
            Self::Torch(_) | Self::Sequence { .. } | Self::Cuda(_) | Self::Threads { .. } => {
                ErrorCode::ComputeFailed
            }
        }
    }

    /// Sorts a message of libtorch. Only its first line is kept: the rest is a C++ backtrace.
    pub(crate) fn from_message(message: &str) -> Self {
        // c10's CPU allocator, CUDA's caching allocator, the CUDA runtime, cuBLAS's workspace,
        // and operator new, in this order.
        const OUT_OF_MEMORY: [&str; 5] = [
            "DefaultCPUAllocator",
            "CUDA out of memory",
            "CUDA error: out of memory",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "std::bad_alloc",
        ];
        // oneDNN does not say why; products of shapes that ran before fail for no other reason.
        const BROKEN: [&str; 3] = [
            "could not create a primitive",
            "could not execute a primitive",
            "could not create a memory",
        ];
        let line = message.lines().next().unwrap_or_default().trim().to_owned();
        if OUT_OF_MEMORY.iter().any(|sign| line.contains(sign)) {
            Self::OutOfMemory(line)
        } else if BROKEN.iter().any(|sign| line.contains(sign)) {
            Self::Broken(line)
        } else {
            Self::Torch(line)
        }
    }
}

impl From<TchError> for DecoderError {
    fn from(error: TchError) -> Self {
        match error {
            TchError::Torch(message) => Self::from_message(&message),
            other => Self::from_message(&other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    #[test]
    fn an_impossible_allocation_is_out_of_memory() {
        let error = Tensor::f_empty([1 << 50], (Kind::Float, Device::Cpu)).unwrap_err();
        let error = DecoderError::from(error);
        assert!(matches!(error, DecoderError::OutOfMemory(_)), "{error}");
        assert_eq!(error.code(), ErrorCode::OutOfMemory);
    }

    #[test]
    fn other_failures_keep_their_first_line_only() {
        let row = Tensor::f_zeros([3], (Kind::Float, Device::Cpu)).unwrap();
        let error = DecoderError::from(row.f_reshape([2, 2]).unwrap_err());
        assert!(matches!(error, DecoderError::Torch(_)), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
        assert!(
            error.to_string().contains("shape '[2, 2]' is invalid"),
            "{error}"
        );
    }

    #[test]
    fn memory_errors_of_cuda_are_told_apart() {
        for message in [
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity",
            "CUDA error: out of memory",
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "std::bad_alloc",
        ] {
            let error = DecoderError::from_message(message);
            assert!(matches!(error, DecoderError::OutOfMemory(_)), "{error}");
        }
        let error = DecoderError::from_message("could not create a primitive");
        assert!(matches!(error, DecoderError::Broken(_)), "{error}");
        assert_eq!(error.code(), ErrorCode::OutOfMemory);
        let error = DecoderError::from_message("CUDA error: an illegal memory access");
        assert!(matches!(error, DecoderError::Torch(_)), "{error}");
    }
}
