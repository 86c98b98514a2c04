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

/// tanh(x) to some 3 units in the last place: the quotient of two polynomials in x^2, as Eigen has
/// it, which is 1 from 7.9 on.
#[inline(always)]
pub(crate) unsafe fn tanh<V: Vector>(x: V) -> V {
    const BOUND: f32 = 7.905_311;
    const ABOVE: [f32; 6] = [
        2.000_187_9e-13,
        -8.604_671_5e-11,
        5.122_297_1e-8,
        1.485_722_4e-5,
        6.372_619_3e-4,
        4.893_524_6e-3,
    ];
    const BELOW: [f32; 3] = [1.185_347_1e-4, 2.268_434_6e-3, 4.893_525_2e-3];
    unsafe {
        let x = V::splat(-BOUND).max(V::splat(BOUND).min(x));
        let square = x.mul(x);
        let mut above = V::splat(-2.760_768_5e-16);
        let mut term = 0;
        while term < ABOVE.len() {
            above = above.mul_add(square, V::splat(ABOVE[term]));
            term += 1;
        }
        let mut below = V::splat(1.198_258_4e-6);
        let mut term = 0;
        while term < BELOW.len() {
            below = below.mul_add(square, V::splat(BELOW[term]));
            term += 1;
        }
        x.mul(above).div(below)
    }
}
