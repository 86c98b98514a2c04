//! Sums of products: what a matrix product is made of.

use half::bf16;

use crate::level::Level;
use crate::number::Number;
use crate::vector::Vector;
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512};

/// A dtype that matrices are multiplied in.
#[allow(private_bounds)]
pub trait Factor: Number {
    /// How many consecutive numbers one lane multiplies and adds up at once.
    #[doc(hidden)]
    const STEP: usize;

    /// Whether there is a matrix product for this level.
    fn multiplies(level: Level) -> bool;

    /// Runs a kernel with the vectors of a level.
    ///
    /// # Panics
    /// If there is no matrix product for the level, or the processor does not have it.
    #[doc(hidden)]
    fn run<K: Products<Self>>(level: Level, kernel: K);
}

/// Vectors of float32 sums that products of `T` are added to.
///
/// # Safety
/// As of [`Vector`]: the processor has the instructions, and pointers are valid.
pub(crate) trait Dot<T>: Vector {
    /// `T::STEP` numbers for each lane.
    type Operand: Copy;

    /// `LANES * T::STEP` numbers.
    unsafe fn operand(from: *const T) -> Self::Operand;
    /// `T::STEP` numbers, the same for each lane.
    unsafe fn repeated(from: *const T) -> Self::Operand;
    /// `self` and the products of each lane.
    unsafe fn dot(self, a: Self::Operand, b: Self::Operand) -> Self;
    /// Stores numbers that are no denormals, rounded to the nearest, half to even.
    unsafe fn narrow(self, to: *mut T);
}

/// As [`Kernel`](crate::level::Kernel), of code that multiplies.
pub(crate) trait Products<T> {
    /// # Safety
    /// The processor has the instructions of `V`, and those of its products.
    unsafe fn run<V: Dot<T>>(self);
}

#[allow(private_bounds)]
impl Factor for f32 {
    const STEP: usize = 1;

    fn multiplies(level: Level) -> bool {
        level >= Level::Avx2
    }

    fn run<K: Products<Self>>(level: Level, kernel: K) {
        assert!(
            level.is_available() && Self::multiplies(level),
            "no products with {level}"
        );
        // SAFETY: the processor has the instructions, by the line above.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            match level {
                Level::Avx2 => avx2(kernel),
                _ => avx512(kernel),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        drop(kernel);
    }
}

#[allow(private_bounds)]
impl Factor for bf16 {
    const STEP: usize = 2;

    fn multiplies(level: Level) -> bool {
        level == Level::Avx512Bf16
    }

    fn run<K: Products<Self>>(level: Level, kernel: K) {
        assert!(
            level.is_available() && Self::multiplies(level),
            "no products with {level}"
        );
        // SAFETY: the processor has the instructions, by the line above.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            avx512_bf16(kernel);
        }
        #[cfg(not(target_arch = "x86_64"))]
        drop(kernel);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(clippy::wildcard_imports)] // of instructions

    use std::arch::x86_64::*;

    use super::{Avx2, Avx512, Dot, Products, Vector as _, bf16};

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2<K: Products<f32>>(kernel: K) {
        // SAFETY: this function has the instructions.
        unsafe { kernel.run::<Avx2>() }
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) unsafe fn avx512<K: Products<f32>>(kernel: K) {
        // SAFETY: this function has the instructions.
        unsafe { kernel.run::<Avx512>() }
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn avx512_bf16<K: Products<bf16>>(kernel: K) {
        // SAFETY: this function has the instructions.
        unsafe { kernel.run::<Avx512>() }
    }

    // SAFETY of every block below: what the trait demands of its callers.

    impl Dot<f32> for Avx2 {
        type Operand = __m256;

        #[inline(always)]
        unsafe fn operand(from: *const f32) -> __m256 {
            unsafe { _mm256_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn repeated(from: *const f32) -> __m256 {
            unsafe { _mm256_set1_ps(*from) }
        }

        #[inline(always)]
        unsafe fn dot(self, a: __m256, b: __m256) -> Self {
            Self(unsafe { _mm256_fmadd_ps(a, b, self.0) })
        }

        #[inline(always)]
        unsafe fn narrow(self, to: *mut f32) {
            unsafe { self.store(to) }
        }
    }

    impl Dot<f32> for Avx512 {
        type Operand = __m512;

        #[inline(always)]
        unsafe fn operand(from: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(from) }
        }

        #[inline(always)]
        unsafe fn repeated(from: *const f32) -> __m512 {
            unsafe { _mm512_set1_ps(*from) }
        }

        #[inline(always)]
        unsafe fn dot(self, a: __m512, b: __m512) -> Self {
            Self(unsafe { _mm512_fmadd_ps(a, b, self.0) })
        }

        #[inline(always)]
        unsafe fn narrow(self, to: *mut f32) {
            unsafe { self.store(to) }
        }
    }

    impl Dot<bf16> for Avx512 {
        type Operand = __m512bh;

        #[inline(always)]
        unsafe fn operand(from: *const bf16) -> __m512bh {
            // SAFETY: both are 64 bytes of any bits.
            unsafe { std::mem::transmute(_mm512_loadu_si512(from.cast())) }
        }

        #[inline(always)]
        unsafe fn repeated(from: *const bf16) -> __m512bh {
            // SAFETY: both are 64 bytes of any bits.
            unsafe { std::mem::transmute(_mm512_set1_epi32(from.cast::<i32>().read_unaligned())) }
        }

        #[inline(always)]
        unsafe fn dot(self, a: __m512bh, b: __m512bh) -> Self {
            Self(unsafe { _mm512_dpbf16_ps(self.0, a, b) })
        }

        #[inline(always)]
        unsafe fn narrow(self, to: *mut bf16) {
            // SAFETY: both are 32 bytes of any bits.
            unsafe {
                let bits: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(self.0));
                _mm256_storeu_si256(to.cast(), bits);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
use x86::{avx2, avx512, avx512_bf16};
