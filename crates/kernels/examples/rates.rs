//! Measures kernels at the shapes of a small model, one thread.
//!
//! ```text
//! cargo run --release -p assay-kernels --example rates [LEVEL] [ROWS]
//! ```
//!
//! Prints the shortest of some runs and the rate. The shapes are those of SmolLM2-135M, windows
//! of 1024. Run it on an idle machine.

use std::env;
use std::hint::black_box;
use std::time::{Duration, Instant};

use assay_kernels::{
    Activation, After, Alone, Attention, Cpu, Factor, Head, Level, Logits, Panels, RmsNorm, Rows,
    RowsMut, Space, bf16, product, rotate,
};

const HIDDEN: usize = 576;
const INTERMEDIATE: usize = 1536;
const HEADS: usize = 9;
const KV_HEADS: usize = 3;
const HEAD_DIM: usize = 64;
const VOCAB_SIZE: usize = 49_152;
const WINDOW: usize = 1024;

fn main() {
    let mut arguments = env::args().skip(1);
    let level = arguments.next().map_or(Level::best(), |name| {
        let named = |level: &Level| level.to_string() == name;
        Level::ALL.into_iter().find(named).expect("a level")
    });
    let rows = arguments
        .next()
        .map_or(2 * WINDOW, |rows| rows.parse().expect("a number of rows"));
    println!("{level}, {rows} rows");
    if f32::multiplies(level) {
        println!("float32");
        measure::<f32>(level, rows);
    }
    if bf16::multiplies(level) {
        println!("bfloat16");
        measure::<bf16>(level, rows);
    }
}

fn numbers<T: Factor>(len: usize) -> Vec<T> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        T::of((state >> 8) as f32 / (1 << 24) as f32 - 0.5)
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn shortest(mut run: impl FnMut()) -> Duration {
    let times = (0..15).map(|_| {
        let started = Instant::now();
        run();
        started.elapsed()
    });
    times.min().expect("some runs")
}

fn say(what: &str, time: Duration, flops: f64) {
    let rate = flops / time.as_secs_f64() / 1e9;
    println!(
        "{what:28} {:9.3} ms {rate:8.1} GFLOP/s",
        time.as_secs_f64() * 1e3
    );
}

fn measure<T: Factor>(level: Level, rows: usize) {
    products::<T>(level, rows);
    between::<T>(level, rows);
    around::<T>(level, rows);
}

fn products<T: Factor>(level: Level, rows: usize) {
    let space = Space::new(1, HEAD_DIM).expect("some memory");
    let cpu = Cpu {
        level,
        threads: &Alone,
        space: &space,
    };
    for (what, outputs, inputs, after) in [
        (
            "query, key, value",
            (HEADS + 2 * KV_HEADS) * HEAD_DIM,
            HIDDEN,
            After::Replace,
        ),
        ("output", HIDDEN, HIDDEN, After::Add),
        ("gate and up", 2 * INTERMEDIATE, HIDDEN, After::Replace),
        (
            "gate and up, with SiLU",
            2 * INTERMEDIATE,
            HIDDEN,
            After::Gate(Activation::Silu),
        ),
        ("down", HIDDEN, INTERMEDIATE, After::Add),
    ] {
        let columns = if matches!(after, After::Gate(_)) {
            outputs / 2
        } else {
            outputs
        };
        let (x, weight) = (
            numbers::<T>(rows * inputs),
            numbers(Panels::<T>::len_of(outputs, inputs)),
        );
        let mut out = vec![T::default(); rows * columns];
        let time = shortest(|| {
            let out = RowsMut::new(&mut out, rows, columns, columns);
            let x = Rows::new(&x, rows, inputs, inputs);
            product(cpu, x, Panels::new(&weight, inputs), None, after, out);
        });
        say(what, time, 2.0 * (rows * outputs * inputs) as f64);
        black_box(out);
    }
}

fn between<T: Factor>(level: Level, rows: usize) {
    let space = Space::new(1, HEAD_DIM).expect("some memory");
    let cpu = Cpu {
        level,
        threads: &Alone,
        space: &space,
    };
    let columns = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
    let mut qkv = numbers::<T>(rows * columns);
    let attention = Attention {
        heads: HEADS,
        kv_heads: KV_HEADS,
        head_dim: HEAD_DIM,
        scale: 0.125,
        softcap: None,
        reach: None,
        bias: None,
    };
    let windows: Vec<_> = (0..rows / WINDOW)
        .map(|i| i * WINDOW..(i + 1) * WINDOW)
        .collect();
    let mut laid_out = vec![T::default(); windows.len() * attention.laid_out_len(WINDOW)];
    let mut out = vec![T::default(); rows * HEADS * HEAD_DIM];
    let time = shortest(|| {
        let out = RowsMut::new(&mut out, rows, HEADS * HEAD_DIM, HEADS * HEAD_DIM);
        let qkv = Rows::new(&qkv, rows, columns, columns);
        attention.apply(cpu, qkv, &windows, &mut laid_out, out);
    });
    let pairs = windows.len() * WINDOW * (WINDOW + 1) / 2 * HEADS;
    say("attention", time, 4.0 * (pairs * HEAD_DIM) as f64);

    let angles = numbers::<T>(rows * HEAD_DIM / 2);
    let time = shortest(|| {
        let heads = (HEADS + KV_HEADS) * HEAD_DIM;
        let angles = Rows::new(&angles, rows, HEAD_DIM / 2, HEAD_DIM / 2);
        let x = RowsMut::new(&mut qkv, rows, heads, columns);
        rotate(cpu, x, HEAD_DIM, [angles, angles]);
    });
    say(
        "rotary embedding",
        time,
        3.0 * (rows * (HEADS + KV_HEADS) * HEAD_DIM) as f64,
    );
}

fn around<T: Factor>(level: Level, rows: usize) {
    let space = Space::new(1, HEAD_DIM).expect("some memory");
    let cpu = Cpu {
        level,
        threads: &Alone,
        space: &space,
    };
    let (x, weight) = (numbers::<T>(rows * HIDDEN), numbers::<T>(HIDDEN));
    let mut out = vec![T::default(); rows * HIDDEN];
    let time = shortest(|| {
        let norm = RmsNorm {
            weight: &weight,
            eps: 1e-5,
            rounds_first: true,
        };
        let out = RowsMut::new(&mut out, rows, HIDDEN, HIDDEN);
        norm.apply(cpu, Rows::new(&x, rows, HIDDEN, HIDDEN), out);
    });
    say("norm", time, 4.0 * (rows * HIDDEN) as f64);

    let head = numbers::<T>(Panels::<T>::len_of(VOCAB_SIZE, HIDDEN));
    let targets: Vec<usize> = (0..rows).map(|row| row * 7 % VOCAB_SIZE).collect();
    let time = shortest(|| {
        let x = Rows::new(&x, rows, HIDDEN, HIDDEN);
        let head = Head {
            weight: Panels::new(&head, HIDDEN),
            bias: None,
            vocab_size: VOCAB_SIZE,
            logits: Logits::PLAIN,
        };
        black_box(head.nll(cpu, x, &targets));
    });
    say(
        "head and loss",
        time,
        2.0 * (rows * VOCAB_SIZE * HIDDEN) as f64,
    );
}
