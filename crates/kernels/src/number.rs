//! The dtypes that kernels read and write.
#![allow(private_bounds)] // only kernels load vectors

use half::bf16;

use crate::vector::Vector;

/// A number of a dtype.
pub trait Number: Copy + Default + Send + Sync + 'static {
    /// The nearest number of this dtype.
    fn of(value: f32) -> Self;
    /// The same number in float32.
    fn wide(self) -> f32;

    /// Loads a whole vector.
    ///
    /// # Safety
    /// As [`Vector::load`].
    #[doc(hidden)]
    unsafe fn load<V: Vector>(from: *const Self) -> V;
    /// Stores a whole vector.
    ///
    /// # Safety
    /// As [`Vector::store`].
    #[doc(hidden)]
    unsafe fn store<V: Vector>(vector: V, to: *mut Self);
    /// Loads `count` numbers, fewer than a vector has, and `fill` for the others.
    ///
    /// # Safety
    /// As [`Vector::load_some`].
    #[doc(hidden)]
    unsafe fn load_some<V: Vector>(from: *const Self, count: usize, fill: f32) -> V;
    /// Stores the first `count` numbers, fewer than a vector has.
    ///
    /// # Safety
    /// As [`Vector::store_some`].
    #[doc(hidden)]
    unsafe fn store_some<V: Vector>(vector: V, to: *mut Self, count: usize);
    /// Rounds to this dtype.
    ///
    /// # Safety
    /// As [`Vector::add`].
    #[doc(hidden)]
    unsafe fn rounded<V: Vector>(vector: V) -> V;
}

impl Number for f32 {
    fn of(value: f32) -> Self {
        value
    }

    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Self) -> V {
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(vector: V, to: *mut Self) {
        unsafe { vector.store(to) }
    }

    #[inline(always)]
    unsafe fn load_some<V: Vector>(from: *const Self, count: usize, fill: f32) -> V {
        unsafe { V::load_some(from, count, fill) }
    }

    #[inline(always)]
    unsafe fn store_some<V: Vector>(vector: V, to: *mut Self, count: usize) {
        unsafe { vector.store_some(to, count) }
    }

    #[inline(always)]
    unsafe fn rounded<V: Vector>(vector: V) -> V {
        vector
    }
}

impl Number for bf16 {
    fn of(value: f32) -> Self {
        bf16::from_f32(value)
    }

    fn wide(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    unsafe fn load<V: Vector>(from: *const Self) -> V {
        unsafe { V::load_bf16(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store<V: Vector>(vector: V, to: *mut Self) {
        unsafe { vector.store_bf16(to.cast()) }
    }

    #[inline(always)]
    unsafe fn load_some<V: Vector>(from: *const Self, count: usize, fill: f32) -> V {
        unsafe { V::load_some_bf16(from.cast(), count, fill) }
    }

    #[inline(always)]
    unsafe fn store_some<V: Vector>(vector: V, to: *mut Self, count: usize) {
        unsafe { vector.store_some_bf16(to.cast(), count) }
    }

    #[inline(always)]
    unsafe fn rounded<V: Vector>(vector: V) -> V {
        unsafe { vector.rounded_to_bf16() }
    }
}

/// Loads a vector, or `count` numbers where that is less, and `fill` for the others.
///
/// # Safety
/// The processor has the instructions, and `from` is valid for as many numbers.
#[inline(always)]
pub(crate) unsafe fn load<T: Number, V: Vector>(from: *const T, count: usize, fill: f32) -> V {
    // SAFETY: as the caller says.
    unsafe {
        if count >= V::LANES {
            T::load(from)
        } else {
            T::load_some(from, count, fill)
        }
    }
}

/// Stores a vector, or the first `count` numbers of it where that is less.
///
/// # Safety
/// As of [`load`].
#[inline(always)]
pub(crate) unsafe fn store<T: Number, V: Vector>(vector: V, to: *mut T, count: usize) {
    // SAFETY: as the caller says.
    unsafe {
        if count >= V::LANES {
            T::store(vector, to);
        } else {
            T::store_some(vector, to, count);
        }
    }
}
