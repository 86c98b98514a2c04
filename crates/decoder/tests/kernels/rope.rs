//! Rotary position embedding.

use assay_kernels::{Alone, bf16, rotate};
use fastrand::Rng;
use proptest::prelude::*;
use tch::Tensor;

use crate::support::{Dtype, Matrix, Three, UNIT, check, cpu, levels, random, signed};

fn agrees<T: Dtype>([rows, heads, half, rest]: [usize; 4], gaps: [usize; 2], size: f32, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let head_dim = 2 * half + rest;
    let x = Matrix::<T>::random([rows, heads * head_dim, gaps[0]], size, &mut rng);
    let angles: Vec<f32> = (0..rows * half).map(|_| random(4.0, &mut rng)).collect();
    let of = |function: fn(f32) -> f32| {
        Matrix::<T>::new([rows, half, gaps[1]], |row, at| {
            function(angles[row * half + at])
        })
    };
    let (cos, sin) = (of(f32::cos), of(f32::sin));

    let shape = [signed(rows), signed(heads), signed(head_dim)];
    let split = |x: &Tensor| {
        let sizes = [signed(half), signed(half), signed(rest)];
        x.view(shape).split_with_sizes(sizes, 2)
    };
    let (wide_cos, wide_sin) = (cos.exact().unsqueeze(1), sin.exact().unsqueeze(1));
    let parts = split(&x.exact());
    let (a, b, rest) = (&parts[0], &parts[1], &parts[2]);
    let wanted = Tensor::cat(
        &[
            a * &wide_cos - b * &wide_sin,
            b * &wide_cos + a * &wide_sin,
            rest.shallow_clone(),
        ],
        2,
    );
    // Two products and their sum.
    let magnitude = |a: &Tensor, b: &Tensor| (a * &wide_cos).abs() + (b * &wide_sin).abs();
    let error =
        Tensor::cat(&[magnitude(a, b), magnitude(b, a), rest.zeros_like()], 2) * (2.0 * UNIT);
    for level in levels() {
        let run = |threads| {
            let mut out = x.clone();
            rotate(
                cpu(level, threads),
                out.rows_mut(),
                head_dim,
                [cos.rows(), sin.rows()],
            );
            out.check_gaps();
            out
        };
        let out = run(&Alone);
        check::<T>(&out.exact(), &wanted, &error, &format!("{level}"));
        // What is not rotated stays as it is.
        assert_eq!(split(&out.exact())[2], *rest, "{level}");
        assert_eq!(run(&Three).bits(), out.bits(), "{level}: three threads");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rotations(
        shape in [1..20_usize, 1..5, 1..70, 0..9],
        gaps in [0..7_usize, 0..7],
        size in prop::sample::select(vec![1e-30_f32, 1.0, 1e30]),
        seed: u64,
    ) {
        agrees::<f32>(shape, gaps, size, seed);
        agrees::<bf16>(shape, gaps, size, seed);
    }
}
