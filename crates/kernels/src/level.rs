//! The instruction sets that kernels are written for, and the way into them.

use std::fmt;

use crate::vector::{Portable, Vector};
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512};

/// An instruction set, as far as kernels tell them apart. Each one has what those before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor has.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with products of bfloat16.
    Avx512Bf16,
}

impl Level {
    /// All levels, in their order.
    pub const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16];

    /// The highest level that this processor has.
    pub fn best() -> Self {
        let available = Self::ALL
            .into_iter()
            .rev()
            .find(|level| level.is_available());
        available.unwrap_or(Self::Portable)
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Portable => true,
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Self::Avx512Bf16 => {
                Self::Avx512.is_available() && is_x86_feature_detected!("avx512bf16")
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }

    /// Runs a kernel with the vectors of this level.
    ///
    /// # Panics
    /// If the processor does not have it.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        assert!(self.is_available(), "this processor has no {self}");
        // SAFETY: the processor has the instructions, by the line above.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match self {
                Self::Portable => kernel.run::<Portable>(),
                Self::Avx2 => avx2(kernel),
                Self::Avx512 | Self::Avx512Bf16 => avx512(kernel),
            }
        }
        // SAFETY: every processor has what these vectors need.
        #[cfg(not(target_arch = "x86_64"))]
        unsafe {
            kernel.run::<Portable>();
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512_bf16",
        })
    }
}

/// Code that is compiled once for each instruction set.
///
/// Everything that it calls on its way to a vector must be `#[inline(always)]`: only then is it
/// compiled with the instructions of the function it ends up in.
pub(crate) trait Kernel {
    /// # Safety
    /// The processor has the instructions of `V`.
    unsafe fn run<V: Vector>(self);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<K: Kernel>(kernel: K) {
    // SAFETY: this function has the instructions.
    unsafe { kernel.run::<Avx2>() }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<K: Kernel>(kernel: K) {
    // SAFETY: this function has the instructions.
    unsafe { kernel.run::<Avx512>() }
}
