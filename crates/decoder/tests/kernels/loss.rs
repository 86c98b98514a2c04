//! The negative log-likelihood of targets.

use assay_kernels::{After, Alone, Head, Logits, Panels, bf16, nll, product};
use fastrand::Rng;
use proptest::prelude::*;
use tch::{Kind, Tensor};

use crate::support::{
    Dtype, Matrix, Three, UNIT, cpu, levels, multiplying, random, signed, values,
};

/// What makes logits.
fn logits() -> impl Strategy<Value = Logits> {
    let scale = prop::sample::select(vec![1.0_f32, 0.125, 0.7, 3.0]);
    let softcap = prop::option::of(prop::sample::select(vec![1.0_f32, 15.0, 30.0]));
    (scale, softcap).prop_map(|(scale, softcap)| Logits { scale, softcap })
}

fn vocab_size() -> impl Strategy<Value = usize> {
    prop_oneof![1..70_usize, 250..262_usize, 500..5001_usize]
}

fn targets(rows: usize, vocab_size: usize, rng: &mut Rng) -> Vec<usize> {
    (0..rows).map(|_| rng.usize(..vocab_size)).collect()
}

/// Of each row, with how far off it may be. Logits are float32 numbers, so outputs of the head
/// times a scale are rounded to it here too; the tanh of a cap is off by some units. A term of the
/// sum is off by that of the exponential, and by that of its argument, which is rounded. Of a block
/// of 256 terms, eight at a time go to four sums, so that a term is part of at most 14 sums.
fn wanted<T: Dtype>(outputs: &Matrix<T>, logits: Logits, targets: &[usize]) -> Vec<(f64, f64)> {
    let scaled = outputs.exact().to_kind(Kind::Float) * f64::from(logits.scale);
    let scaled = scaled.to_kind(Kind::Double);
    let of_cap = |cap: f32| {
        let cap = f64::from(cap);
        (&scaled / cap).tanh() * cap
    };
    let exact = logits
        .softcap
        .map_or_else(|| scaled.shallow_clone(), of_cap);
    let targets: Vec<i64> = targets.iter().map(|target| signed(*target)).collect();
    let targets = Tensor::from_slice(&targets).unsqueeze(1);
    let wanted = exact
        .log_softmax(-1, Kind::Double)
        .gather(1, &targets, false);
    let below = exact.amax(-1, true) - &exact;
    let mean = exact.softmax(-1, Kind::Double) * below.nan_to_num(0.0, 0.0, 0.0);
    let mut error = (mean.sum_dim_intlist(-1, false, Kind::Double) + 14.0 + 4.0) * UNIT;
    if logits.softcap.is_some() {
        error += exact.abs().amax(-1, false) * (16.0 * UNIT);
    }
    let nlls = values(&wanted).into_iter().map(|value| -value);
    // What is left is that of float64.
    let allowed = |(nll, error): (f64, f64)| (nll, error + 1e-15 * nll.abs() + 1e-12);
    nlls.zip(values(&error)).map(allowed).collect()
}

fn agrees<T: Dtype>(outputs: &Matrix<T>, logits: Logits, targets: &[usize]) {
    let wanted = wanted(outputs, logits, targets);
    for level in levels() {
        let got = nll(cpu(level, &Alone), outputs.rows(), logits, targets);
        for (row, (got, (wanted, allowed))) in got.iter().zip(&wanted).enumerate() {
            assert!(
                (got - wanted).abs() <= *allowed || got == wanted,
                "{level}: row {row} is {got}, not {wanted}, which is more than {allowed} off"
            );
        }
        let shared = nll(cpu(level, &Three), outputs.rows(), logits, targets);
        assert_eq!(bits(&shared), bits(&got), "{level}: three threads");
    }
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// A head gives what its outputs, rounded to their dtype, give: to the last bit, as both sum the
/// same numbers in the same order.
fn heads_agree<T: Dtype>(
    [rows, steps, vocab_size, gap]: [usize; 4],
    has_bias: bool,
    logits: Logits,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let inputs = steps * T::STEP;
    let x = Matrix::<T>::random([rows, inputs, gap], 3.0, &mut rng);
    let weight = Matrix::<T>::random([vocab_size, inputs, 0], 1.0, &mut rng);
    let mut panels = vec![T::default(); Panels::<T>::len_of(vocab_size, inputs)];
    Panels::fill(&mut panels, weight.rows(), |row| row);
    let bias = Matrix::<T>::random([1, vocab_size, 0], 2.0, &mut rng).numbers();
    let bias = has_bias.then_some(&bias[..]);
    let targets = targets(rows, vocab_size, &mut rng);
    let head = Head {
        weight: Panels::new(&panels, inputs),
        bias,
        vocab_size,
        logits,
    };
    for level in multiplying::<T>() {
        let mut outputs = Matrix::<T>::new([rows, vocab_size, 0], |_, _| f32::NAN);
        product(
            cpu(level, &Alone),
            x.rows(),
            head.weight,
            bias,
            After::Replace,
            outputs.rows_mut(),
        );
        let wanted = nll(cpu(level, &Alone), outputs.rows(), logits, &targets);
        agrees(&outputs, logits, &targets);
        let got = head.nll(cpu(level, &Alone), x.rows(), &targets);
        assert_eq!(bits(&got), bits(&wanted), "{level}");
        let shared = head.nll(cpu(level, &Three), x.rows(), &targets);
        assert_eq!(bits(&shared), bits(&wanted), "{level}: three threads");
        let some = rows / 2..rows;
        let part = head.nll(
            cpu(level, &Alone),
            x.part(some.clone()).rows(),
            &targets[some.clone()],
        );
        assert_eq!(bits(&part), bits(&wanted[some]), "{level}: some rows");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn losses(
        rows in 1..9_usize,
        vocab_size in vocab_size(),
        gap in 0..5_usize,
        logits in logits(),
        size in prop::sample::select(vec![0.0_f32, 1.0, 10.0, 50.0, 1e4]),
        ends in 0..300_usize,
        seed: u64,
    ) {
        let mut rng = Rng::with_seed(seed);
        let targets = targets(rows, vocab_size, &mut rng);
        // Some rows begin with tokens that are impossible, of which a target may be one.
        let mut number = |row: usize, token: usize| {
            let is_possible = row.is_multiple_of(2) || token + 1 == vocab_size || token >= 3 * ends;
            if is_possible { random(size, &mut rng) } else { f32::NEG_INFINITY }
        };
        // A cap makes what is impossible possible.
        agrees(&Matrix::<f32>::new([rows, vocab_size, gap], &mut number), logits, &targets);
        agrees(&Matrix::<bf16>::new([rows, vocab_size, gap], &mut number), logits, &targets);
    }

    #[test]
    fn equal_logits_of_any_size(vocab_size in vocab_size(), logit in -3e38_f32..3e38) {
        let logits = Matrix::<f32>::new([2, vocab_size, 0], |_, _| logit);
        agrees(&logits, Logits::PLAIN, &[0, vocab_size - 1]);
        let logits = Matrix::<bf16>::new([2, vocab_size, 0], |_, _| logit);
        agrees(&logits, Logits::PLAIN, &[vocab_size / 2, vocab_size - 1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn heads(
        rows in prop_oneof![1..14_usize, 250..300_usize],
        steps in prop_oneof![1..50_usize, 1000..1100_usize],
        vocab_size in prop_oneof![1..70_usize, 250..262_usize, 500..1500_usize],
        gap in 0..5_usize,
        has_bias: bool,
        logits in logits(),
        seed: u64,
    ) {
        heads_agree::<f32>([rows, steps, vocab_size, gap], has_bias, logits, seed);
        heads_agree::<bf16>([rows, steps, vocab_size, gap], has_bias, logits, seed);
    }
}

fn spoils_its_row_only<T: Dtype>(bad: f32, logits: Logits) {
    let vocab_size = 700;
    for place in [0, 1, 255, 256, 500, 699] {
        let outputs = |bad: f32| {
            let mut rng = Rng::with_seed(5);
            Matrix::<T>::new([3, vocab_size, 2], |row, token| {
                let number = random(5.0, &mut rng);
                if row == 1 && token == place {
                    bad
                } else {
                    number
                }
            })
        };
        let targets = [3, 600, 3];
        for level in levels() {
            let got = nll(cpu(level, &Alone), outputs(bad).rows(), logits, &targets);
            let without = nll(cpu(level, &Alone), outputs(0.0).rows(), logits, &targets);
            assert!(got[1].is_nan(), "{level} {bad} at {place}: {got:?}");
            assert_eq!(
                [got[0], got[2]],
                [without[0], without[2]],
                "{level} {bad} at {place}"
            );
        }
    }
}

#[test]
fn what_is_not_a_number_spoils_its_row_only() {
    let capped = Logits {
        scale: 0.5,
        softcap: Some(20.0),
    };
    for (bad, logits) in [
        (f32::NAN, Logits::PLAIN),
        (f32::INFINITY, Logits::PLAIN),
        (f32::NAN, capped),
    ] {
        spoils_its_row_only::<f32>(bad, logits);
        spoils_its_row_only::<bf16>(bad, logits);
    }
}

#[test]
fn nothing_is_likely_where_all_is_impossible() {
    for level in levels() {
        let outputs = Matrix::<f32>::new([1, 600, 0], |_, _| f32::NEG_INFINITY);
        assert!(
            nll(cpu(level, &Alone), outputs.rows(), Logits::PLAIN, &[7])[0].is_nan(),
            "{level}"
        );
    }
}

#[test]
fn certain_and_impossible_targets() {
    let outputs = Matrix::<f32>::new([3, 600, 0], |_, token| match token {
        0..300 => f32::NEG_INFINITY,
        599 => 1000.0,
        _ => 0.0,
    });
    for level in levels() {
        let got = nll(
            cpu(level, &Alone),
            outputs.rows(),
            Logits::PLAIN,
            &[599, 400, 5],
        );
        assert_eq!(got, [0.0, 1000.0, f64::INFINITY], "{level}");
    }
}

/// Each rounding may go the same way, which is what the bound of all cases is for; but hardly ever
/// does.
#[test]
fn a_loss_is_hardly_off() {
    let (rows, vocab_size) = (24, 50_000);
    let mut rng = Rng::with_seed(13);
    for size in [1.0, 10.0] {
        let outputs = Matrix::<f32>::random([rows, vocab_size, 0], size, &mut rng);
        let targets = targets(rows, vocab_size, &mut rng);
        let wanted = wanted(&outputs, Logits::PLAIN, &targets);
        for level in levels() {
            let got = nll(cpu(level, &Alone), outputs.rows(), Logits::PLAIN, &targets);
            for (got, (wanted, _)) in got.iter().zip(&wanted) {
                assert!(
                    (got - wanted).abs() <= 3e-7 * wanted.max(1.0),
                    "{level}: {got}, not {wanted}"
                );
            }
        }
    }
}
