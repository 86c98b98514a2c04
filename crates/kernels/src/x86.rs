//! Vectors of AVX2 and AVX-512.

#![allow(clippy::wildcard_imports)] // of instructions

use std::arch::x86_64::*;

use crate::vector::Vector;

/// Eight numbers.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(pub(crate) __m256);

/// Sixteen numbers.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(crate) __m512);

// SAFETY of every block below: what the trait demands of its callers.

impl Avx2 {
    /// The bits of each number rounded to bfloat16, in the upper half of its lane.
    #[inline(always)]
    unsafe fn rounded_bits(self) -> __m256i {
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            // Half of the last place that stays, and one more if that place is odd.
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_add_epi32(bits, half);
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let chosen = _mm256_blendv_epi8(rounded, quiet, is_nan);
            _mm256_and_si256(chosen, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()))
        }
    }

    /// `2^power` of integers from -126 to 127.
    #[inline(always)]
    unsafe fn power_of_two(power: __m256i) -> __m256 {
        unsafe {
            let biased = _mm256_add_epi32(power, _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
}

impl Vector for Avx2 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(unsafe { _mm256_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let bits = _mm256_srli_epi32::<16>(self.rounded_bits());
            let narrow = _mm_packus_epi32(
                _mm256_castsi256_si128(bits),
                _mm256_extracti128_si256::<1>(bits),
            );
            _mm_storeu_si128(to.cast(), narrow);
        }
    }

    #[inline(always)]
    unsafe fn rounded_to_bf16(self) -> Self {
        Self(unsafe { _mm256_castsi256_ps(self.rounded_bits()) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Self(unsafe { _mm256_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Self(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Self(unsafe { _mm256_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn if_below(self, bound: Self, then: Self, other: Self) -> Self {
        unsafe {
            let is_below = _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, bound.0);
            Self(_mm256_blendv_ps(other.0, then.0, is_below))
        }
    }

    #[inline(always)]
    unsafe fn nearest(self) -> Self {
        Self(unsafe {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }

    #[inline(always)]
    unsafe fn scale(self, power: Self) -> Self {
        unsafe {
            // In two steps, each of which has an exponent that a float32 can have.
            let power = _mm256_cvtps_epi32(power.0);
            let half = _mm256_srai_epi32::<1>(power);
            let rest = _mm256_sub_epi32(power, half);
            let once = _mm256_mul_ps(self.0, Self::power_of_two(half));
            Self(_mm256_mul_ps(once, Self::power_of_two(rest)))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe {
            let four = _mm_add_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    unsafe fn highest(self) -> f32 {
        unsafe {
            let four = _mm_max_ps(
                _mm256_castps256_ps128(self.0),
                _mm256_extractf128_ps::<1>(self.0),
            );
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}

impl Avx512 {
    /// The bits of each number rounded to bfloat16, in the upper half of its lane.
    #[inline(always)]
    unsafe fn rounded_bits(self) -> __m512i {
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            // Half of the last place that stays, and one more if that place is odd.
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
            let rounded = _mm512_add_epi32(bits, half);
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0);
            let quiet = _mm512_set1_epi32(0x0040_0000);
            let chosen = _mm512_mask_or_epi32(rounded, is_nan, bits, quiet);
            _mm512_and_si512(chosen, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()))
        }
    }
}

/// A bit for each of the first `count` of 16 lanes.
#[inline(always)]
fn first(count: usize) -> u16 {
    // None is never asked for.
    u16::MAX >> (16 - count)
}

impl Vector for Avx512 {
    const LANES: usize = 16;

    // Masks instead of copies: a call in a loop would cost its registers.
    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize, fill: f32) -> Self {
        Self(unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(count), from) })
    }

    #[inline(always)]
    unsafe fn load_some_bf16(from: *const u16, count: usize, fill: f32) -> Self {
        unsafe {
            let mask = first(count);
            let bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from.cast()));
            let loaded = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits));
            Self(_mm512_mask_mov_ps(_mm512_set1_ps(fill), mask, loaded))
        }
    }

    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, count: usize) {
        unsafe { _mm512_mask_storeu_ps(to, first(count), self.0) }
    }

    #[inline(always)]
    unsafe fn store_some_bf16(self, to: *mut u16, count: usize) {
        unsafe {
            let bits = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(self.rounded_bits()));
            _mm256_mask_storeu_epi16(to.cast(), first(count), bits);
        }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        Self(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits)))
        }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        unsafe {
            let bits = _mm512_srli_epi32::<16>(self.rounded_bits());
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(bits));
        }
    }

    #[inline(always)]
    unsafe fn rounded_to_bf16(self) -> Self {
        Self(unsafe { _mm512_castsi512_ps(self.rounded_bits()) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        Self(unsafe { _mm512_div_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(unsafe { _mm512_fmadd_ps(self.0, factor.0, addend.0) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        Self(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        Self(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn if_below(self, bound: Self, then: Self, other: Self) -> Self {
        unsafe {
            let is_below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, bound.0);
            Self(_mm512_mask_mov_ps(other.0, is_below, then.0))
        }
    }

    #[inline(always)]
    unsafe fn nearest(self) -> Self {
        Self(unsafe {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)
        })
    }

    #[inline(always)]
    unsafe fn scale(self, power: Self) -> Self {
        Self(unsafe { _mm512_scalef_ps(self.0, power.0) })
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        unsafe { _mm512_reduce_add_ps(self.0) }
    }

    #[inline(always)]
    unsafe fn highest(self) -> f32 {
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
}
