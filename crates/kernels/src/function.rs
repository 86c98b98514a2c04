//! Functions of vectors.
#![allow(clippy::excessive_precision)] // constants as they were published

use crate::vector::Vector;

/// e^x to some 2 units in the last place; 0 and infinity beyond float32's range, NaN of NaN.
///
/// x = n ln 2 + r, with ln 2 in two parts (Cody and Waite) and Cephes' polynomial for e^r.
#[inline(always)]
pub(crate) unsafe fn exp<V: Vector>(x: V) -> V {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN_2: [f32; 2] = [0.693_359_375, -2.121_944_4e-4];
    const TERMS: [f32; 5] = [
        1.398_199_95e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_6e-1,
        5.000_000_1e-1,
    ];
    unsafe {
        // The bound comes first: where `x` is NaN, NaN stays.
        let x = V::splat(-104.0).max(V::splat(89.0).min(x));
        let n = x.mul(V::splat(LOG2_E)).nearest();
        let r = n.mul_add(V::splat(-LN_2[0]), x);
        let r = n.mul_add(V::splat(-LN_2[1]), r);
        let mut sum = V::splat(1.987_569_1e-4);
        let mut term = 0;
        while term < TERMS.len() {
            sum = sum.mul_add(r, V::splat(TERMS[term]));
            term += 1;
        }
        let sum = sum.mul_add(r.mul(r), r).add(V::splat(1.0));
        sum.scale(n)
    }
}

/// tanh(x) to some 2 units in the last place: 1 - 2 / (e^2x + 1), and near zero, where that cancels,
/// Cephes' polynomial.
#[inline(always)]
pub(crate) unsafe fn tanh<V: Vector>(x: V) -> V {
    const NEAR: f32 = 0.625;
    const TERMS: [f32; 4] = [
        2.063_908_9e-2,
        -5.373_971_6e-2,
        1.333_144_2e-1,
        -3.333_328_2e-1,
    ];
    unsafe {
        let far = exp(x.add(x)).add(V::splat(1.0));
        let far = V::splat(1.0).sub(V::splat(2.0).div(far));
        let square = x.mul(x);
        let mut sum = V::splat(-5.704_988_7e-3);
        let mut term = 0;
        while term < TERMS.len() {
            sum = sum.mul_add(square, V::splat(TERMS[term]));
            term += 1;
        }
        let near = sum.mul_add(square.mul(x), x);
        square.if_below(V::splat(NEAR * NEAR), near, far)
    }
}
