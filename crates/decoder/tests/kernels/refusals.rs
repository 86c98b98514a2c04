//! Shapes that do not fit each other are refused, and what was refused leaves nothing behind.

use std::ops::Range;

use assay_kernels::{
    Activation, After, Alone, Attention, Factor, Head, Level, Logits, Panels, RmsNorm, Rows,
    RowsMut, bf16, nll, product, rotate,
};

use crate::support::{cpu, multiplying, refuses};

#[test]
fn matrices_lie_within_their_numbers() {
    let mut numbers = [0.0_f32; 20];
    assert!(!refuses(|| Rows::new(&numbers, 3, 4, 8)));
    assert!(refuses(|| Rows::new(&numbers, 3, 5, 8)));
    assert!(refuses(|| Rows::new(&numbers, 2, 8, 4)));
    assert!(refuses(|| Rows::new(&numbers, usize::MAX / 4, 4, 8)));
    assert!(refuses(|| Rows::new(&numbers, 3, 4, 8).row(3)));
    assert!(refuses(|| RowsMut::new(&mut numbers, 3, 5, 8)));
    assert!(!refuses(|| RowsMut::new(&mut numbers, 0, 5, 8)));
}

#[test]
fn panels_are_whole_and_take_whole_steps() {
    let mut numbers = vec![bf16::default(); 64 * 4];
    assert!(!refuses(|| Panels::new(&numbers, 4)));
    assert!(refuses(|| Panels::new(&numbers[1..], 4)));
    assert!(refuses(|| Panels::new(&numbers, 0)));
    assert!(refuses(|| Panels::new(&numbers[..64 * 3], 3)));
    assert!(refuses(
        || Panels::new(&numbers, 4).copy_row(64, &mut [bf16::default(); 4])
    ));
    assert!(refuses(
        || Panels::new(&numbers, 4).copy_row(0, &mut [bf16::default(); 3])
    ));
    let row = [bf16::default(); 4];
    assert!(refuses(|| Panels::fill(
        &mut numbers,
        Rows::new(&row, 1, 4, 4),
        |_| 64
    )));
    assert!(refuses(|| Panels::fill(
        &mut numbers,
        Rows::new(&row, 1, 3, 3),
        |_| 0
    )));
}

#[test]
fn products_of_other_shapes() {
    let (x, panels, bias) = ([1.0_f32; 8], [1.0; 64 * 4], [1.0; 64]);
    let run = |level, inputs, rows, columns, bias: usize, after| {
        let mut out = [0.0; 200];
        let out = RowsMut::new(&mut out, rows, columns, 70);
        let (x, panels) = (Rows::new(&x, 2, inputs, 4), Panels::new(&panels, 4));
        refuses(|| {
            product(
                cpu(level, &Alone),
                x,
                panels,
                Some(&vec![1.0; bias]),
                after,
                out,
            );
        })
    };
    let gate = After::Gate(Activation::Silu);
    for level in multiplying::<f32>() {
        assert!(!run(level, 4, 2, 60, 60, After::Replace));
        assert!(!run(level, 4, 2, 20, 64, gate));
        assert!(run(level, 3, 2, 60, 60, After::Replace));
        assert!(run(level, 4, 1, 60, 60, After::Replace));
        assert!(run(level, 4, 2, 65, 65, After::Replace));
        assert!(run(level, 4, 2, 60, 64, After::Replace));
        assert!(run(level, 4, 2, 33, 64, gate));
        assert!(run(level, 4, 2, 20, 20, gate));
        let head = |vocab_size, inputs, bias, target| {
            let head = Head {
                weight: Panels::new(&panels, 4),
                bias: Some(bias),
                vocab_size,
                logits: Logits::PLAIN,
            };
            refuses(|| {
                head.nll(
                    cpu(level, &Alone),
                    Rows::new(&x, 2, inputs, 4),
                    &[0, target],
                )
            })
        };
        assert!(!head(60, 4, &bias[..60], 59));
        assert!(head(60, 4, &bias[..60], 60));
        assert!(head(60, 4, &bias, 59));
        assert!(head(60, 3, &bias[..60], 59));
        assert!(head(65, 4, &[1.0; 65], 59));
    }
    for level in Level::ALL
        .into_iter()
        .filter(|level| !f32::multiplies(*level))
    {
        assert!(run(level, 4, 2, 60, 60, After::Replace));
    }
}

#[test]
fn rows_of_other_shapes() {
    let numbers = [1.0_f32; 24];
    let targets = |targets: &[usize]| {
        let outputs = Rows::new(&numbers, 2, 5, 12);
        refuses(|| {
            nll(
                cpu(Level::Portable, &Alone),
                outputs,
                Logits::PLAIN,
                targets,
            )
        })
    };
    assert!(!targets(&[0, 4]));
    assert!(targets(&[0, 5]));
    assert!(targets(&[0]));

    let norm = |size: usize, rows, columns| {
        let norm = RmsNorm {
            weight: &numbers[..size],
            eps: 1e-5,
            rounds_first: false,
        };
        let mut out = [0.0; 24];
        let out = RowsMut::new(&mut out, rows, columns, 12);
        refuses(|| {
            norm.apply(
                cpu(Level::Portable, &Alone),
                Rows::new(&numbers, 2, 12, 12),
                out,
            );
        })
    };
    assert!(!norm(4, 2, 12));
    assert!(norm(5, 2, 12));
    assert!(norm(0, 2, 12));
    assert!(norm(4, 1, 12));
    assert!(norm(4, 2, 8));

    let activate = |inner| {
        let mut x = numbers;
        refuses(|| {
            Activation::Relu.apply(
                cpu(Level::Portable, &Alone),
                RowsMut::new(&mut x, 2, 12, 12),
                inner,
            );
        })
    };
    assert!(!activate(12) && !activate(6));
    assert!(activate(7));

    let turn = |head_dim, half, of_sines| {
        let mut x = numbers;
        let (x, cos) = (
            RowsMut::new(&mut x, 2, 12, 12),
            Rows::new(&numbers, 2, half, 12),
        );
        let sin = Rows::new(&numbers, 2, of_sines, 12);
        refuses(|| rotate(cpu(Level::Portable, &Alone), x, head_dim, [cos, sin]))
    };
    assert!(!turn(4, 2, 2));
    assert!(turn(4, 3, 3));
    assert!(turn(4, 2, 1));
    assert!(turn(5, 2, 2));
}

#[test]
#[allow(clippy::reversed_empty_ranges)] // that is what is refused
fn attention_of_other_shapes() {
    let plain = Attention {
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        scale: 1.0,
        softcap: None,
        reach: None,
        bias: None,
    };
    let qkv = [1.0_f32; 16 * 9];
    for level in multiplying::<f32>() {
        let run = |attention: Attention<'_>, windows: &[Range<usize>], less: usize, columns| {
            let mut space = vec![0.0; 20_000 - less];
            let mut out = [0.0; 9 * 8];
            let (qkv, out) = (
                Rows::new(&qkv, 9, 16, 16),
                RowsMut::new(&mut out, 9, columns, 8),
            );
            refuses(|| attention.apply(cpu(level, &Alone), qkv, windows, &mut space, out))
        };
        assert!(!run(plain, &[0..4, 5..9], 0, 8));
        assert!(run(plain, &[0..10], 0, 8));
        assert!(run(plain, &[0..5, 4..9], 0, 8));
        assert!(run(plain, &[5..9, 0..4], 0, 8));
        assert!(run(plain, &[0..5, 9..4, 4..9], 0, 8));
        assert!(run(plain, &[0..4, 5..9], 20_000 - plain.laid_out_len(4), 8));
        assert!(run(plain, &[0..4], 0, 7));
        assert!(run(
            Attention {
                kv_heads: 0,
                ..plain
            },
            &[0..4],
            0,
            8
        ));
        assert!(run(
            Attention {
                heads: 3,
                kv_heads: 2,
                ..plain
            },
            &[0..4],
            0,
            8
        ));
        assert!(run(
            Attention {
                scale: 0.0,
                ..plain
            },
            &[0..4],
            0,
            8
        ));
        let bias = Some(Rows::new(&qkv, 2, 3, 3));
        assert!(!run(Attention { bias, ..plain }, &[0..3], 0, 8));
        assert!(run(Attention { bias, ..plain }, &[0..4], 0, 8));
    }
    assert!(
        !Attention::takes::<bf16>(7) && Attention::takes::<f32>(7) && !Attention::takes::<f32>(0)
    );
}

/// A task that panics has memory for what it computes on the way; the next one gets it again.
#[test]
fn a_panic_in_a_task_leaves_no_memory_taken() {
    let numbers = [1.0_f32; 64];
    let multiply = |level| {
        let mut out = [0.0];
        let (x, weight) = (Rows::new(&numbers, 1, 1, 1), Panels::new(&numbers, 1));
        let out = RowsMut::new(&mut out, 1, 1, 1);
        product(cpu(level, &Alone), x, weight, None, After::Replace, out);
    };
    assert!(refuses(|| multiply(Level::Portable)));
    let outputs = Rows::new(&numbers, 2, 12, 12);
    let values = nll(
        cpu(Level::Portable, &Alone),
        outputs,
        Logits::PLAIN,
        &[0, 4],
    );
    assert!(
        values
            .iter()
            .all(|value| (value - 12_f64.ln()).abs() < 1e-7)
    );
}
