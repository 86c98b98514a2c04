//! Vectors of float32 numbers, as wide as an instruction set has them.

/// `LANES` float32 numbers.
///
/// # Safety
/// Of all methods: the processor has the instructions, and pointers are valid for as many numbers
/// as are read or written; they need not be aligned.
pub(crate) trait Vector: Copy {
    /// How many numbers.
    const LANES: usize;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Numbers in bfloat16, of which these are the bits.
    unsafe fn load_bf16(from: *const u16) -> Self;
    /// Rounds to the nearest, half to even. NaN stays NaN.
    unsafe fn store_bf16(self, to: *mut u16);
    /// `count` numbers, fewer than there are lanes, and `fill` for the others.
    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize, fill: f32) -> Self {
        let mut whole = [fill; LONGEST];
        // SAFETY: valid for `count` numbers, says the caller, and the array has more.
        unsafe {
            std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr(), count);
            Self::load(whole.as_ptr())
        }
    }
    /// The same of bfloat16.
    #[inline(always)]
    unsafe fn load_some_bf16(from: *const u16, count: usize, fill: f32) -> Self {
        let mut whole = [half::bf16::from_f32(fill).to_bits(); LONGEST];
        // SAFETY: valid for `count` numbers, says the caller, and the array has more.
        unsafe {
            std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr(), count);
            Self::load_bf16(whole.as_ptr())
        }
    }
    /// The first `count` numbers, fewer than there are lanes.
    #[inline(always)]
    unsafe fn store_some(self, to: *mut f32, count: usize) {
        let mut whole = [0.0; LONGEST];
        // SAFETY: valid for `count` numbers, says the caller, and the array has more.
        unsafe {
            self.store(whole.as_mut_ptr());
            std::ptr::copy_nonoverlapping(whole.as_ptr(), to, count);
        }
    }
    /// The same in bfloat16.
    #[inline(always)]
    unsafe fn store_some_bf16(self, to: *mut u16, count: usize) {
        let mut whole = [0; LONGEST];
        // SAFETY: valid for `count` numbers, says the caller, and the array has more.
        unsafe {
            self.store_bf16(whole.as_mut_ptr());
            std::ptr::copy_nonoverlapping(whole.as_ptr(), to, count);
        }
    }
    /// As stored in bfloat16 and loaded again.
    unsafe fn rounded_to_bf16(self) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// `self * factor + addend`, rounded once where the processor can.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// The larger one; `other` if one of them is NaN.
    unsafe fn max(self, other: Self) -> Self;
    /// The smaller one; `other` if one of them is NaN.
    unsafe fn min(self, other: Self) -> Self;
    /// `then` where `self` is below `bound`, and `other` elsewhere and where it is NaN.
    unsafe fn if_below(self, bound: Self, then: Self, other: Self) -> Self;
    /// The nearest integer, half to even.
    unsafe fn nearest(self) -> Self;
    /// `self * 2^power`, for integers from -252 to 254.
    unsafe fn scale(self, power: Self) -> Self;
    /// The sum of all lanes.
    unsafe fn sum(self) -> f32;
    /// The largest lane; it may be any if one is NaN.
    unsafe fn highest(self) -> f32;
}

/// The lanes of the longest vector.
const LONGEST: usize = 16;
/// The lanes of [`Portable`].
const LANES: usize = 8;

/// Vectors for any processor: loops over arrays, which compilers turn into what there is.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; LANES]);

impl Portable {
    #[inline(always)]
    fn map(self, each: impl Fn(f32) -> f32) -> Self {
        Self(self.0.map(each))
    }

    #[inline(always)]
    fn zip(self, other: Self, each: impl Fn(f32, f32) -> f32) -> Self {
        let mut result = self;
        for (own, other) in result.0.iter_mut().zip(other.0) {
            *own = each(*own, other);
        }
        result
    }
}

impl Vector for Portable {
    const LANES: usize = LANES;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: valid for LANES numbers, says the caller.
        Self(unsafe { from.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: valid for LANES numbers, says the caller.
        unsafe { to.cast::<[f32; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: valid for LANES numbers, says the caller.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }

    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut u16) {
        let bits = self.0.map(|value| half::bf16::from_f32(value).to_bits());
        // SAFETY: valid for LANES numbers, says the caller.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(bits) }
    }

    #[inline(always)]
    unsafe fn rounded_to_bf16(self) -> Self {
        self.map(|value| half::bf16::from_f32(value).to_f32())
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        // Without the instruction a fused one is a call that takes a hundred times as long.
        self.zip(factor, |a, b| a * b).zip(addend, |a, b| a + b)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    unsafe fn if_below(self, bound: Self, then: Self, other: Self) -> Self {
        let mut result = other;
        for lane in 0..LANES {
            if self.0[lane] < bound.0[lane] {
                result.0[lane] = then.0[lane];
            }
        }
        result
    }

    #[inline(always)]
    unsafe fn nearest(self) -> Self {
        // Adding and taking away a number whose last bit is a one rounds to an integer.
        const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23
        self.map(|value| (value + SHIFT) - SHIFT)
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // integers in range, says the caller
    unsafe fn scale(self, power: Self) -> Self {
        // In two steps, each of which has an exponent that a float32 can have.
        let of = |power: i32| f32::from_bits((power + 127).cast_unsigned() << 23);
        self.zip(power, |value, power| {
            let power = power as i32;
            let half = power >> 1;
            value * of(half) * of(power - half)
        })
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        self.0.into_iter().sum()
    }

    #[inline(always)]
    unsafe fn highest(self) -> f32 {
        self.0.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}
