//! What attention is computed of, and what it is to be.

use std::ops::Range;

use assay_kernels::{Attention, Level, Threads};
use fastrand::Rng;
use proptest::prelude::*;
use tch::{Device, Kind, Tensor};

use crate::support::{Dtype, LEAST, Matrix, UNIT, cpu, random, signed};

/// Attention of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) kv_heads: usize,
    pub(super) ratio: usize,
    /// Steps of a head: as many numbers in float32, twice as many in bfloat16.
    pub(super) steps: usize,
    pub(super) windows: Vec<Range<usize>>,
    pub(super) reach: Option<usize>,
    pub(super) softcap: Option<f32>,
    pub(super) has_bias: bool,
    /// Of the queries, and of the scale: together they make small scores, and scores of 1e4.
    pub(super) sizes: [f32; 2],
    pub(super) gaps: [usize; 2],
    pub(super) seed: u64,
}

/// Windows of such lengths, some with rows before them that belong to none.
fn windows(lens: &[(usize, usize)]) -> Vec<Range<usize>> {
    let mut start = 0;
    let mut place = |(apart, len): &(usize, usize)| {
        let window = start + apart..start + apart + len;
        start = window.end;
        window
    };
    lens.iter().map(&mut place).collect()
}

pub(super) fn case() -> impl Strategy<Value = Case> {
    let short = prop::collection::vec(
        (
            0..3_usize,
            prop_oneof![Just(1_usize), 2..60_usize, 60..140_usize],
        ),
        1..4,
    );
    let long = (0..3_usize, 505..700_usize).prop_map(|window| vec![window, (1, 5)]);
    let lens = prop_oneof![short, long];
    let reach = prop::option::of(prop_oneof![Just(1_usize), 2..70_usize, 100..700_usize]);
    let softcap = prop::option::weighted(0.3, prop::sample::select(vec![2.0_f32, 30.0]));
    let sizes = (
        prop::sample::select(vec![0.0_f32, 1.0, 1.0, 30.0]),
        prop::sample::select(vec![0.05_f32, 1.0, 20.0]),
    );
    let steps = prop_oneof![4..20_usize, 30..36_usize, 60..129_usize];
    let heads = (1..3_usize, 1..4_usize, steps);
    (
        heads,
        lens,
        reach,
        softcap,
        prop::bool::weighted(0.3),
        sizes,
        [0..5_usize, 0..5_usize],
        any::<u64>(),
    )
        .prop_map(
            |((kv_heads, ratio, steps), lens, reach, softcap, has_bias, sizes, gaps, seed)| Case {
                kv_heads,
                ratio,
                steps,
                windows: windows(&lens),
                reach,
                softcap,
                has_bias,
                sizes: sizes.into(),
                gaps,
                seed,
            },
        )
}

/// The numbers of a case.
pub(super) struct Numbers<T> {
    pub(super) attention: Attention<'static>,
    pub(super) qkv: Matrix<T>,
    pub(super) bias: Option<Matrix<f32>>,
    pub(super) gap: usize,
}

impl<T: Dtype> Numbers<T> {
    pub(super) fn new(case: &Case) -> Self {
        let mut rng = Rng::with_seed(case.seed);
        let attention = Attention {
            heads: case.kv_heads * case.ratio,
            kv_heads: case.kv_heads,
            head_dim: case.steps * T::STEP,
            scale: case.sizes[1],
            softcap: case.softcap,
            reach: case.reach,
            bias: None,
        };
        let rows = case.windows.last().map_or(0, |window| window.end) + 1;
        let of_queries = attention.heads * attention.head_dim;
        let columns = of_queries + 2 * attention.kv_heads * attention.head_dim;
        let qkv = Matrix::new([rows, columns, case.gaps[0]], |_, column| {
            random(
                if column < of_queries {
                    case.sizes[0]
                } else {
                    2.0
                },
                &mut rng,
            )
        });
        let longest = case.windows.iter().map(Range::len).max().unwrap_or(0);
        let bias = case
            .has_bias
            .then(|| Matrix::random([attention.heads, longest, 2], 5.0, &mut rng));
        Self {
            attention,
            qkv,
            bias,
            gap: case.gaps[1],
        }
    }

    /// Rows outside of the windows are left as they were, which is 7.
    pub(super) fn apply(
        &self,
        level: Level,
        windows: &[Range<usize>],
        threads: &dyn Threads,
    ) -> Matrix<T> {
        let attention = Attention {
            bias: self.bias.as_ref().map(Matrix::rows),
            ..self.attention
        };
        let columns = attention.heads * attention.head_dim;
        let mut out = Matrix::new([self.qkv.rows().count(), columns, self.gap], |_, _| 7.0);
        let mut space = vec![
            T::default();
            windows
                .iter()
                .map(|window| attention.laid_out_len(window.len()))
                .sum()
        ];
        // The second time finds what the first has left.
        for _ in 0..2 {
            attention.apply(
                cpu(level, threads),
                self.qkv.rows(),
                windows,
                &mut space,
                out.rows_mut(),
            );
        }
        out.check_gaps();
        out
    }

    /// The heads `[heads, len, head_dim]` of a window, of those that begin at a number of heads.
    pub(super) fn heads(
        &self,
        rows: &Tensor,
        window: &Range<usize>,
        first: usize,
        count: usize,
    ) -> Tensor {
        let head_dim = self.attention.head_dim;
        rows.narrow(0, signed(window.start), signed(window.len()))
            .narrow(1, signed(first * head_dim), signed(count * head_dim))
            .reshape([signed(window.len()), signed(count), signed(head_dim)])
            .transpose(0, 1)
    }

    /// Queries, keys and values of a window.
    pub(super) fn parts(&self, rows: &Tensor, window: &Range<usize>) -> [Tensor; 3] {
        let Attention {
            heads, kv_heads, ..
        } = self.attention;
        [(0, heads), (heads, kv_heads), (heads + kv_heads, kv_heads)]
            .map(|(first, count)| self.heads(rows, window, first, count))
    }

    /// What each query of a window is to attend to and how far off that may be, `[heads, len,
    /// head_dim]`.
    pub(super) fn wanted(&self, window: &Range<usize>) -> (Tensor, Tensor) {
        let Attention {
            heads,
            kv_heads,
            head_dim,
            ..
        } = self.attention;
        let [queries, keys, values] = self.parts(&self.qkv.exact(), window);
        let shared = |x: &Tensor| x.repeat_interleave_self_int(signed(heads / kv_heads), 0, None);
        let (keys, values) = (shared(&keys), shared(&values));
        let scale = f64::from(self.attention.scale);
        let terms = (head_dim + 2) as f64;
        let mut scores = queries.matmul(&keys.transpose(1, 2)) * scale;
        let magnitude = queries.abs().matmul(&keys.abs().transpose(1, 2)) * scale;
        let mut error = magnitude * (terms * UNIT);
        if let Some(cap) = self.attention.softcap.map(f64::from) {
            scores = (scores / cap).tanh() * cap;
            error += scores.abs() * (8.0 * UNIT); // of the tanh; its slope is at most 1
        }
        let len = signed(window.len());
        if let Some(bias) = &self.bias {
            scores += bias.exact().narrow(1, 0, len).unsqueeze(1);
            error += scores.abs() * (2.0 * UNIT);
        }
        let at = Tensor::arange(len, (Kind::Int64, Device::Cpu));
        let distance = at.unsqueeze(1) - at.unsqueeze(0);
        let mut excluded = distance.lt(0);
        if let Some(reach) = self.attention.reach {
            excluded = excluded.logical_or(&distance.ge(signed(reach)));
        }
        let scores = scores.masked_fill(&excluded, f64::NEG_INFINITY);
        // The highest score is taken away, and again where a higher one is found, each rounded to
        // float32; the exponential is good to some units in the last place.
        let below = scores.amax(-1, true) - &scores;
        error = error + below.masked_fill(&excluded, 0.0) * (2.0 * UNIT) + 16.0 * UNIT;
        let weights = scores.softmax(-1, Kind::Double);
        // e^error - 1 of a weight, and as much of their sum; a weight is rounded to the dtype.
        let off = &weights * error.expm1();
        let off =
            &off + &weights * off.sum_dim_intlist(-1, true, Kind::Double) + &weights * T::HALF;
        let terms = signed(window.len()) as f64 + 8.0;
        let of_sum = weights.matmul(&values.abs()) * (terms * UNIT);
        let error = off.matmul(&values.abs()) * 1.01 + of_sum + terms * 8.0 * LEAST;
        (weights.matmul(&values), error)
    }
}
