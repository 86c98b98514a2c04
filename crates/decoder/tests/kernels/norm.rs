//! RMS norm.

use assay_kernels::{Alone, RmsNorm, bf16};
use fastrand::Rng;
use proptest::prelude::*;
use tch::{Kind, Tensor};

use crate::support::{Dtype, Matrix, Three, UNIT, check, cpu, levels, signed};

/// `x / sqrt(mean(x^2) + eps) * weight` in the kind of `x`.
fn formula(x: &Tensor, weight: &Tensor, eps: f32, rounds_to: Option<Kind>) -> Tensor {
    let kind = x.kind();
    let size = weight.size()[0];
    let groups = x.view([-1, size]);
    let mean = groups.square().mean_dim(-1, true, kind);
    let mut normed = &groups * (mean + f64::from(eps)).rsqrt();
    if let Some(rounded) = rounds_to {
        normed = normed.to_kind(rounded).to_kind(kind);
    }
    (normed * weight.to_kind(kind)).view_as(x)
}

fn agrees<T: Dtype, W: Dtype>(
    [rows, groups, size]: [usize; 3],
    gaps: [usize; 2],
    (scale, eps): (f32, f32),
    rounds_first: bool,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let x = Matrix::<T>::random([rows, groups * size, gaps[0]], scale, &mut rng);
    let weight = Matrix::<W>::random([1, size, 0], 2.0, &mut rng);
    let weights = weight.numbers();
    let norm = RmsNorm {
        weight: &weights,
        eps,
        rounds_first,
    };
    let wanted = formula(&x.exact(), &weight.exact().view(-1), eps, None);
    // The root halves what the mean is off by; then root, quotient and two products. A first
    // rounding is one more of the dtype.
    let first = if rounds_first { T::HALF } else { 0.0 };
    let error = wanted.abs() * ((size as f64 / 2.0 + 6.0) * UNIT + first);
    for level in levels() {
        let apart = |threads| {
            let mut out = Matrix::<T>::new([rows, groups * size, gaps[1]], |_, _| f32::NAN);
            norm.apply(cpu(level, threads), x.rows(), out.rows_mut());
            out.check_gaps();
            out
        };
        let out = apart(&Alone);
        check::<T>(&out.exact(), &wanted, &error, &format!("{level}"));
        let mut in_place = x.clone();
        norm.apply_in_place(cpu(level, &Three), in_place.rows_mut());
        in_place.check_gaps();
        assert_eq!(in_place.bits(), out.bits(), "{level}: in place");
        assert_eq!(apart(&Three).bits(), out.bits(), "{level}: three threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn norms(
        shape in [1..9_usize, 1..5, 1..200],
        gaps in [0..5_usize, 0..5],
        scale in prop::sample::select(vec![1e-10_f32, 1e-3, 1.0, 1e4, 1e17]),
        eps in prop::sample::select(vec![1e-12_f32, 1e-6, 1e-5, 1.0]),
        rounds_first: bool,
        seed: u64,
    ) {
        agrees::<f32, f32>(shape, gaps, (scale, eps), rounds_first, seed);
        agrees::<bf16, bf16>(shape, gaps, (scale, eps), rounds_first, seed);
        agrees::<bf16, f32>(shape, gaps, (scale, eps), rounds_first, seed);
    }
}

/// All but the few numbers that lie next to the middle of two are the same; were they rounded in
/// another place, a third would not be.
#[test]
fn numbers_are_rounded_where_they_are_said_to_be() {
    let mut rng = Rng::with_seed(3);
    let x = Matrix::<bf16>::random([40, 96, 0], 3.0, &mut rng);
    let weight = Matrix::<bf16>::random([1, 96, 0], 2.0, &mut rng);
    let weights = weight.numbers();
    for rounds_first in [false, true] {
        let rounds_to = rounds_first.then_some(Kind::BFloat16);
        let wanted = formula(&x.exact(), &weight.exact().view(-1), 1e-5, rounds_to);
        let wanted = wanted.to_kind(Kind::BFloat16);
        for level in levels() {
            let mut out = x.clone();
            let norm = RmsNorm {
                weight: &weights,
                eps: 1e-5,
                rounds_first,
            };
            norm.apply_in_place(cpu(level, &Alone), out.rows_mut());
            let others = out.tensor().not_equal_tensor(&wanted).sum(Kind::Int64);
            assert!(
                others.int64_value(&[]) < 40 * 96 / 100,
                "{level} {rounds_first}: {others}"
            );
        }
    }
}

#[test]
fn zeros_stay_zero_and_squares_out_of_range_are_as_in_libtorch() {
    for level in levels() {
        for (size, number, eps) in [
            (70, 0.0, f32::MIN_POSITIVE),
            (70, 0.0, 1e-45),
            (100, 1e18, 1e-5),
            (1000, 1e18, 1e-5),
            (3, 3e38, 1e-5),
            (3, f32::INFINITY, 1e-5),
            (3, f32::NAN, 1e-5),
        ] {
            let x = Matrix::<f32>::new([2, size, 1], |row, _| if row == 0 { number } else { 1.0 });
            let weights = vec![1.5_f32; size];
            let norm = RmsNorm {
                weight: &weights,
                eps,
                rounds_first: false,
            };
            let mut out = x.clone();
            norm.apply_in_place(cpu(level, &Alone), out.rows_mut());
            let weight = Tensor::from_slice(&weights);
            let rows: Vec<Tensor> = (0..2)
                .map(|row| formula(&x.tensor().narrow(0, row, 1), &weight, eps, None))
                .collect();
            let wanted = Tensor::cat(&rows, 0).view([2, signed(size)]);
            let error = wanted.abs().to_kind(Kind::Double) * (size as f64 * UNIT);
            let error = error.nan_to_num(0.0, 0.0, 0.0);
            check::<f32>(
                &out.exact(),
                &wanted,
                &error,
                &format!("{level} {size} {number}"),
            );
        }
    }
}
