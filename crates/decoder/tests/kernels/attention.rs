//! Causal attention within windows.

mod numbers;

use std::ops::Range;

use assay_kernels::{Alone, Attention, bf16};
use fastrand::Rng;
use proptest::prelude::*;
use tch::Tensor;

use self::numbers::{Case, Numbers, case};
use crate::support::{Dtype, Matrix, Three, check, cpu, multiplying};

fn agrees<T: Dtype>(case: &Case) {
    let numbers = Numbers::<T>::new(case);
    let Attention { heads, .. } = numbers.attention;
    let wanted: Vec<_> = case
        .windows
        .iter()
        .map(|window| numbers.wanted(window))
        .collect();
    for level in multiplying::<T>() {
        let out = numbers.apply(level, &case.windows, &Alone);
        let exact = out.exact();
        for (window, (wanted, error)) in case.windows.iter().zip(&wanted) {
            let got = numbers.heads(&exact, window, 0, heads);
            check::<T>(&got, wanted, error, &format!("{level} {window:?}"));
            if case.reach.is_none() && case.softcap.is_none() && !case.has_bias {
                // libtorch's own attention is off by as much.
                let [queries, keys, values] = numbers
                    .parts(&numbers.qkv.tensor(), window)
                    .map(|part| part.unsqueeze(0));
                let scale = f64::from(numbers.attention.scale);
                let own = Tensor::scaled_dot_product_attention(
                    &queries,
                    &keys,
                    &values,
                    None::<Tensor>,
                    0.0,
                    true,
                    scale,
                    true,
                );
                let error = error * 2.0 + (wanted.abs() + error) * (2.0 * T::HALF);
                check::<T>(
                    &got,
                    &own.squeeze_dim(0),
                    &error,
                    &format!("{level} {window:?}, libtorch"),
                );
            }
        }
        let outside = |row: &usize| !case.windows.iter().any(|window| window.contains(row));
        for row in (0..numbers.qkv.rows().count()).filter(outside) {
            let seven = T::of(7.0).bits();
            assert!(
                out.rows().row(row).iter().all(|n| n.bits() == seven),
                "{level}: row {row}"
            );
        }

        let shared = numbers.apply(level, &case.windows, &Three);
        assert_eq!(shared.bits(), out.bits(), "{level}: three threads");
        for window in &case.windows {
            let one = numbers.apply(level, std::slice::from_ref(window), &Alone);
            let (one, all) = (
                one.part(window.clone()).bits(),
                out.part(window.clone()).bits(),
            );
            assert_eq!(one, all, "{level}: {window:?} alone");
        }
    }
}

/// A row whose numbers are `bad` makes NaN of what sees it, and nothing else.
fn spoils_what_sees_it<T: Dtype>(case: &Case, place: prop::sample::Index, bad: f32) {
    let mut numbers = Numbers::<T>::new(case);
    let window = case.windows[place.index(case.windows.len())].clone();
    let spoiled = window.start + place.index(window.len());
    let levels: Vec<_> = multiplying::<T>().collect();
    let before: Vec<_> = levels
        .iter()
        .map(|level| numbers.apply(*level, &case.windows, &Alone))
        .collect();
    numbers.qkv.row_mut(spoiled).fill(T::of(bad));
    for (level, before) in levels.into_iter().zip(before) {
        let out = numbers.apply(level, &case.windows, &Alone);
        for row in 0..numbers.qkv.rows().count() {
            let sees = window.contains(&row)
                && row >= spoiled
                && case.reach.is_none_or(|reach| row - spoiled < reach);
            let (out, before) = (out.part(row..row + 1), before.part(row..row + 1));
            if sees {
                assert!(
                    out.numbers().iter().all(|n| n.wide().is_nan()),
                    "{level}: row {row} of {spoiled}"
                );
            } else {
                assert_eq!(out.bits(), before.bits(), "{level}: row {row} of {spoiled}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn attention_of_float32(case in case()) {
        agrees::<f32>(&case);
    }

    #[test]
    fn attention_of_bfloat16(case in case()) {
        agrees::<bf16>(&case);
    }

    #[test]
    fn a_row_that_is_not_a_number_spoils_what_sees_it(mut case in case(), place: prop::sample::Index) {
        case.steps = 5;
        for bad in [f32::NAN, f32::INFINITY] {
            spoils_what_sees_it::<f32>(&case, place, bad);
            spoils_what_sees_it::<bf16>(&case, place, bad);
        }
    }
}

/// Scores that are all the same, however large, weigh the same.
#[test]
fn equal_scores_give_the_mean() {
    for (size, scale) in [(0.0_f32, 1.0_f32), (1.0, 1e4), (1e15, 1.0)] {
        let len = 600;
        let attention = Attention {
            heads: 1,
            kv_heads: 1,
            head_dim: 8,
            scale,
            softcap: None,
            reach: None,
            bias: None,
        };
        // Queries and keys of one size; a value is the number of its row.
        let qkv = Matrix::<f32>::new(
            [len, 24, 0],
            |row, column| if column < 16 { size } else { row as f32 },
        );
        for level in multiplying::<f32>() {
            let mut out = Matrix::<f32>::new([len, 8, 0], |_, _| f32::NAN);
            let mut space = vec![0.0; attention.laid_out_len(len)];
            attention.apply(
                cpu(level, &Alone),
                qkv.rows(),
                &[0..len],
                &mut space,
                out.rows_mut(),
            );
            for row in 0..len {
                let mean = row as f32 / 2.0;
                let close = |n: &f32| (n - mean).abs() <= 1e-4 * mean;
                assert!(
                    out.rows().row(row).iter().all(close),
                    "{level} {size}: row {row}"
                );
            }
        }
    }
}

/// Keys that a bias excludes weigh nothing, though they fill the first block alone; a query that it
/// leaves none is NaN, as in libtorch.
#[test]
fn a_bias_can_exclude_keys() {
    let (len, first) = (600, 530);
    let mut rng = Rng::with_seed(11);
    let qkv = Matrix::<f32>::random([len, 24, 0], 1.0, &mut rng);
    let bias = |from: usize| {
        Matrix::<f32>::new([1, len, 0], move |_, key| {
            if key < from { f32::NEG_INFINITY } else { 0.0 }
        })
    };
    let bias = [bias(0), bias(first)];
    for level in multiplying::<f32>() {
        let run = |windows: &[Range<usize>], bias: &Matrix<f32>| {
            let attention = Attention {
                heads: 1,
                kv_heads: 1,
                head_dim: 8,
                scale: 1.0,
                softcap: None,
                reach: None,
                bias: Some(bias.rows()),
            };
            let mut out = Matrix::<f32>::new([len, 8, 0], |_, _| 7.0);
            let mut space = vec![0.0; attention.laid_out_len(len)];
            attention.apply(
                cpu(level, &Alone),
                qkv.rows(),
                windows,
                &mut space,
                out.rows_mut(),
            );
            out
        };
        let (got, wanted) = (run(&[0..len], &bias[1]), run(&[first..len], &bias[0]));
        let (none, some) = (got.part(0..first), got.part(first..len).exact());
        assert!(none.numbers().iter().all(|n| n.is_nan()), "{level}");
        let wanted = wanted.part(first..len).exact();
        check::<f32>(
            &some,
            &wanted,
            &(wanted.ones_like() * 1e-5),
            &format!("{level}"),
        );
    }
}
