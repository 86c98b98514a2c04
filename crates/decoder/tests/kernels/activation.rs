//! Activations.

use assay_kernels::{Activation, Alone, bf16};
use fastrand::Rng;
use proptest::prelude::*;
use tch::{Kind, Tensor};

use crate::support::{
    Dtype, LEAST, Matrix, Three, UNIT, check, cpu, levels, random, signed, values,
};

pub(crate) fn any() -> impl Strategy<Value = Activation> {
    let all = [Activation::Silu, Activation::GeluTanh, Activation::Relu];
    prop::sample::select(all.to_vec())
}

/// In float64. libtorch's GELU loses what `1 + tanh` loses, which is
/// `2 / (1 + e^(-2 sqrt(2 / pi) (x + 0.044715 x^3)))`.
fn exact(activation: Activation, x: &Tensor) -> Tensor {
    let x = x.to_kind(Kind::Double);
    match activation {
        Activation::GeluTanh => {
            let inner = (&x * &x * 0.044_715 + 1.0) * &x;
            let twice = inner * (8.0 / std::f64::consts::PI).sqrt();
            x * twice.sigmoid()
        }
        _ => torch(activation, &x),
    }
}

/// libtorch's.
fn torch(activation: Activation, x: &Tensor) -> Tensor {
    match activation {
        Activation::Silu => x.silu(),
        Activation::GeluTanh => x.gelu("tanh"),
        Activation::Relu => x.relu(),
    }
}

/// The activation of numbers that are off by `error`, and how far off it may be: no slope is
/// above 1.13. Of `e^-y` half a unit in the last place of `y`, which is below 89, is 89 u, and a GELU's
/// `y` is off by some units; where `e^-y` is out of range, the result is less than
/// `89 e^-88.7`, some 24 times the least normal number.
pub(crate) fn of(activation: Activation, x: &Tensor, error: &Tensor) -> (Tensor, Tensor) {
    let y = exact(activation, x);
    let own = match activation {
        Activation::Silu => y.abs() * (128.0 * UNIT) + 32.0 * LEAST,
        Activation::GeluTanh => y.abs() * (512.0 * UNIT) + 32.0 * LEAST,
        Activation::Relu => y.abs() * UNIT,
    };
    (y, error * 1.13 + own)
}

fn agrees<T: Dtype>(
    activation: Activation,
    [rows, inner, gap]: [usize; 3],
    gated: bool,
    size: f32,
    seed: u64,
) {
    let mut rng = Rng::with_seed(seed);
    let columns = if gated { 2 * inner } else { inner };
    let x = Matrix::<T>::random([rows, columns, gap], size, &mut rng);
    let exact = x.exact();
    let gate = exact.narrow(1, 0, signed(inner));
    let (mut wanted, mut error) = of(activation, &gate, &gate.zeros_like());
    if gated {
        let up = exact.narrow(1, signed(inner), signed(inner));
        wanted *= &up;
        error = error * up.abs() + wanted.abs() * UNIT;
    }
    for level in levels() {
        let run = |threads| {
            let mut out = x.clone();
            activation.apply(cpu(level, threads), out.rows_mut(), inner);
            out.check_gaps();
            out
        };
        let out = run(&Alone);
        let got = out.exact().narrow(1, 0, signed(inner));
        check::<T>(&got, &wanted, &error, &format!("{level}"));
        if gated {
            let up = |x: &Tensor| values(&x.narrow(1, signed(inner), signed(inner)));
            assert_eq!(up(&out.exact()), up(&exact), "{level}: what multiplies");
        }
        assert_eq!(run(&Three).bits(), out.bits(), "{level}: three threads");
    }
}

/// Numbers at the ends of what there is.
const EXTREMES: [f32; 24] = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1e-39,
    -1e-39,
    1e-20,
    -1e-20,
    9.5,
    -9.5,
    30.0,
    -30.0,
    87.0,
    -87.0,
    1e4,
    -1e4,
    1e19,
    -1e19,
    1e38,
    -1e38,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    -89.5,
];

fn at_the_ends<T: Dtype>(activation: Activation, gated: bool) {
    // Each in a vector with others, and alone behind the last whole one.
    for shift in 0..EXTREMES.len() {
        let inner = EXTREMES.len() + 1;
        let columns = if gated { 2 * inner } else { inner };
        let x = Matrix::<T>::new([1, columns, 0], |_, column| {
            if column < inner {
                EXTREMES[(column + shift) % EXTREMES.len()]
            } else {
                -2.0
            }
        });
        let gate = x.exact().narrow(1, 0, signed(inner));
        let (mut wanted, mut error) = of(activation, &gate, &gate.zeros_like());
        let own = torch(activation, &gate.to_kind(T::KIND)).isnan();
        assert_eq!(wanted.isnan(), own, "libtorch");
        if gated {
            (wanted, error) = (wanted * -2.0, error * 2.0);
        }
        let error = error.nan_to_num(0.0, 0.0, 0.0);
        for level in levels() {
            let mut out = x.clone();
            activation.apply(cpu(level, &Alone), out.rows_mut(), inner);
            let got = out.exact().narrow(1, 0, signed(inner));
            check::<T>(&got, &wanted, &error, &format!("{level} {activation:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn activations(
        activation in any(),
        shape in [1..9_usize, 1..90, 0..5],
        gated: bool,
        size in prop::sample::select(vec![1e-3_f32, 1.0, 10.0, 80.0, 1e4]),
        seed: u64,
    ) {
        agrees::<f32>(activation, shape, gated, size, seed);
        agrees::<bf16>(activation, shape, gated, size, seed);
    }
}

#[test]
fn extremes_are_as_in_libtorch() {
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::Relu] {
        for gated in [false, true] {
            at_the_ends::<f32>(activation, gated);
            at_the_ends::<bf16>(activation, gated);
        }
    }
}

#[test]
fn gelu_of_positive_numbers_is_good_to_some_units_in_the_last_place() {
    let mut rng = Rng::with_seed(7);
    let x = Matrix::<f32>::new([50, 333, 0], |row, _| {
        random(0.2 * row as f32, &mut rng).abs()
    });
    let wanted = exact(Activation::GeluTanh, &x.exact());
    for level in levels() {
        let mut out = x.clone();
        Activation::GeluTanh.apply(cpu(level, &Alone), out.rows_mut(), 333);
        check::<f32>(
            &out.exact(),
            &wanted,
            &(wanted.abs() * (8.0 * UNIT)),
            &format!("{level}"),
        );
    }
}
