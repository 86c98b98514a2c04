//! Matrix products.

use assay_kernels::{
    Activation, After, Alone, Level, PANEL, Panels, Threads, bf16, gated_slots, product,
};
use fastrand::Rng;
use proptest::prelude::*;
use tch::{Kind, Tensor};

use crate::activation;
use crate::support::{Dtype, LEAST, Matrix, Three, UNIT, check, cpu, multiplying, random};

/// A product of random matrices.
#[derive(Clone, Debug)]
struct Case {
    rows: usize,
    /// Steps of a row: as many numbers in float32, twice as many in bfloat16.
    steps: usize,
    outputs: usize,
    gaps: [usize; 2],
    after: After,
    has_bias: bool,
    sizes: [f32; 2],
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let rows = prop_oneof![1..14_usize, 90..110_usize, 245..701_usize];
    let steps = prop_oneof![1..40_usize, 500..530_usize, 1000..1100_usize];
    let act = activation::any();
    let after = (act, 0..4).prop_map(|(activation, which)| match which {
        0 => After::Replace,
        1 => After::Add,
        2 => After::Activate(activation),
        _ => After::Gate(activation),
    });
    let size = || prop::sample::select(vec![1e-20_f32, 1e-3, 1.0, 1e4]);
    (
        rows,
        steps,
        1..200_usize,
        [0..9_usize, 0..9_usize],
        after,
        any::<bool>(),
        [size(), size()],
        any::<u64>(),
    )
        .prop_map(
            |(rows, steps, outputs, gaps, after, has_bias, sizes, seed)| Case {
                rows,
                steps,
                outputs,
                gaps,
                after,
                has_bias,
                sizes,
                seed,
            },
        )
}

/// The numbers of a product.
struct Numbers<T> {
    x: Matrix<T>,
    weight: Matrix<T>,
    panels: Vec<T>,
    /// As many as there are rows of the weight.
    bias: Vec<f32>,
    /// One for each slot.
    laid_out_bias: Option<Vec<T>>,
    old: Matrix<T>,
}

impl<T: Dtype> Numbers<T> {
    fn new(case: &Case) -> Self {
        let mut rng = Rng::with_seed(case.seed);
        let inputs = case.steps * T::STEP;
        let gated = matches!(case.after, After::Gate(_));
        let count = if gated {
            2 * case.outputs
        } else {
            case.outputs
        };
        let x = Matrix::random([case.rows, inputs, case.gaps[0]], case.sizes[0], &mut rng);
        let weight = Matrix::random([count, inputs, case.gaps[1]], case.sizes[1], &mut rng);
        let slot_of = |row| match row {
            row if !gated => row,
            gate if gate < case.outputs => gated_slots(gate)[0],
            up => gated_slots(up - case.outputs)[1],
        };
        let slots = if gated {
            case.outputs.div_ceil(PANEL / 2) * PANEL
        } else {
            count
        };
        let mut panels = vec![T::default(); Panels::<T>::len_of(slots, inputs)];
        Panels::fill(&mut panels, weight.rows(), slot_of);
        let size = case.sizes[0] * case.sizes[1];
        let bias = Matrix::<T>::random([1, count, 0], size, &mut rng).numbers();
        // A slot that no row has is NaN: nothing may come of it.
        let mut laid_out = vec![T::of(f32::NAN); slots];
        for (row, number) in bias.iter().enumerate() {
            laid_out[slot_of(row)] = *number;
        }
        Self {
            x,
            weight,
            panels,
            bias: bias
                .iter()
                .map(|number| if case.has_bias { number.wide() } else { 0.0 })
                .collect(),
            laid_out_bias: case.has_bias.then_some(laid_out),
            old: Matrix::new([case.rows, case.outputs, case.gaps[1]], |_, _| {
                random(size, &mut rng)
            }),
        }
    }

    /// The product of some rows.
    fn product(
        &self,
        level: Level,
        after: After,
        x: &Matrix<T>,
        old: &Matrix<T>,
        threads: &dyn Threads,
    ) -> Matrix<T> {
        let mut out = old.clone();
        let panels = Panels::new(&self.panels, x.rows().columns());
        let bias = self.laid_out_bias.as_deref();
        product(
            cpu(level, threads),
            x.rows(),
            panels,
            bias,
            after,
            out.rows_mut(),
        );
        out.check_gaps();
        out
    }

    /// What is wanted, and how far off it may be before it is rounded.
    fn wanted(&self, case: &Case) -> (Tensor, Tensor) {
        let (x, weight, old) = (self.x.exact(), self.weight.exact(), self.old.exact());
        let bias = Tensor::from_slice(&self.bias).to_kind(Kind::Double);
        let terms = (case.steps * T::STEP + 3) as f64;
        let y = x.matmul(&weight.tr()) + &bias;
        let magnitude = x.abs().matmul(&weight.abs().tr()) + bias.abs();
        let error = magnitude * (terms * UNIT) + terms * LEAST;
        match case.after {
            After::Replace => (y, error),
            After::Add => (y + &old, error + old.abs() * (terms * UNIT)),
            After::Activate(activation) => activation::of(activation, &y, &error),
            After::Gate(activation) => {
                let half = i64::try_from(case.outputs).unwrap();
                let (gate, up) = (y.narrow(1, 0, half), y.narrow(1, half, half));
                let (of_gate, of_up) = (error.narrow(1, 0, half), error.narrow(1, half, half));
                let (gate, of_gate) = activation::of(activation, &gate, &of_gate);
                let product = &gate * &up;
                let error =
                    &of_gate * (up.abs() + &of_up) + gate.abs() * &of_up + product.abs() * UNIT;
                (product, error)
            }
        }
    }
}

fn agrees<T: Dtype>(case: &Case) {
    let numbers = Numbers::<T>::new(case);
    let (wanted, error) = numbers.wanted(case);
    for level in multiplying::<T>() {
        let out = numbers.product(level, case.after, &numbers.x, &numbers.old, &Alone);
        check::<T>(&out.exact(), &wanted, &error, &format!("{level}"));
        if case.after == After::Replace {
            // libtorch's own product is off by as much.
            let bias = case
                .has_bias
                .then(|| Tensor::from_slice(&numbers.bias).to_kind(T::KIND));
            let linear = numbers
                .x
                .tensor()
                .linear(&numbers.weight.tensor(), bias.as_ref());
            let error = &error * 2.0 + (wanted.abs() + &error) * T::HALF;
            check::<T>(&out.exact(), &linear, &error, &format!("{level}, libtorch"));
        }

        let bits = out.bits();
        let shared = numbers.product(level, case.after, &numbers.x, &numbers.old, &Three);
        assert_eq!(shared.bits(), bits, "{level}: three threads");
        let some = case.rows / 3..case.rows / 3 + case.rows.div_ceil(2);
        let (x, old) = (numbers.x.part(some.clone()), numbers.old.part(some.clone()));
        let part = numbers.product(level, case.after, &x, &old, &Three);
        let columns = case.outputs;
        assert_eq!(
            part.bits(),
            bits[some.start * columns..some.end * columns],
            "{level}: some rows"
        );
    }
}

fn lays_out<T: Dtype>(case: &Case) {
    let numbers = Numbers::<T>::new(case);
    let inputs = case.steps * T::STEP;
    let panels = Panels::new(&numbers.panels, inputs);
    let slots = numbers.laid_out_bias.as_ref().map_or(0, Vec::len);
    for row in 0..numbers.weight.rows().count() {
        let slot = match case.after {
            After::Gate(_) if row < case.outputs => gated_slots(row)[0],
            After::Gate(_) => gated_slots(row - case.outputs)[1],
            _ => row,
        };
        assert!(slots == 0 || slot < slots);
        let mut copy = vec![T::default(); inputs];
        panels.copy_row(slot, &mut copy);
        let bits = |row: &[T]| row.iter().map(|number| number.bits()).collect::<Vec<_>>();
        assert_eq!(
            bits(&copy),
            bits(numbers.weight.rows().row(row)),
            "row {row}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn products_of_float32(case in case()) {
        agrees::<f32>(&case);
    }

    #[test]
    fn products_of_bfloat16(case in case()) {
        agrees::<bf16>(&case);
    }

    #[test]
    fn rows_come_back_from_panels(mut case in case()) {
        case.rows = 1;
        lays_out::<f32>(&case);
        lays_out::<bf16>(&case);
    }
}

#[test]
fn an_activation_is_that_of_the_sum_with_its_bias() {
    // One number, so that nothing of it can be lost in a bound.
    for level in multiplying::<f32>() {
        let mut panels = vec![0.0_f32; PANEL];
        panels[0] = 2.0;
        let mut out = Matrix::<f32>::new([1, 1, 3], |_, _| 7.0);
        let after = After::Activate(Activation::Relu);
        let x = Matrix::<f32>::new([1, 1, 0], |_, _| 3.0);
        product(
            cpu(level, &Alone),
            x.rows(),
            Panels::new(&panels, 1),
            Some(&[-5.0]),
            after,
            out.rows_mut(),
        );
        assert_eq!(out.numbers(), [1.0]);
    }
}
