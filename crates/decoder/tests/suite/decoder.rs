//! The decoder against transformers, and against itself in other company.

use std::fs;

use crate::support::{CASES, Window, decoder, load, load_with, path, windows};
use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, DecoderError, MIN_GEMM_ROWS, Products, Sequence, runtime};
use tch::Device;

fn score(decoder: &Decoder, sequences: &[Sequence]) -> Vec<Vec<f64>> {
    decoder.score(sequences).unwrap()
}

/// The largest difference of two windows' values.
fn distance(got: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(got.len(), wanted.len());
    got.iter()
        .zip(wanted)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

#[test]
fn only_counted_positions_come_out() {
    let (decoder, windows) = (decoder("llama_gqa", Dtype::Float32), windows("llama_gqa"));
    let whole = windows.single.sequence();
    let all = score(&decoder, std::slice::from_ref(&whole)).remove(0);
    let at = |positions: &[u32]| Sequence {
        input: whole.input.clone(),
        positions: positions.to_vec(),
        targets: positions
            .iter()
            .map(|&position| whole.targets[position as usize])
            .collect(),
    };
    let tail: Vec<u32> = (60..70).collect();
    let scattered = [0, 3, 4, 94];
    let got = score(&decoder, &[at(&[]), at(&tail), at(&[]), at(&scattered)]);
    assert_eq!(got[0], [0.0; 0]);
    assert_eq!(got[2], [0.0; 0]);
    assert!(distance(&got[1], &all[60..70]) < 1e-5);
    let wanted = scattered.map(|position: u32| all[position as usize]);
    assert!(distance(&got[3], &wanted) < 1e-5, "{:?}", got[3]);
}

#[test]
fn nothing_to_score_gives_nothing() {
    assert!(score(&decoder("llama_tied", Dtype::Float32), &[]).is_empty());
}

#[test]
fn two_runs_give_equal_bits() {
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        let windows = windows("llama_gqa");
        let sequences: Vec<_> = windows.batch.iter().map(Window::sequence).collect();
        let first = score(&decoder("llama_gqa", dtype), &sequences);
        let again = decoder("llama_gqa", dtype);
        assert_eq!(first, score(&again, &sequences));
        assert_eq!(first, score(&again, &sequences));
    }
}

/// Windows that threads share, and tokens in the middle of them.
#[test]
fn the_number_of_threads_changes_no_bit_of_kernels_of_our_own() {
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        for products in Products::available(dtype) {
            if products == Products::Libtorch {
                continue;
            }
            let of = |threads: usize| {
                // A number of threads is a thread's own.
                let scored = std::thread::spawn(move || {
                    runtime::init(threads).unwrap();
                    let checkpoint = Checkpoint::open(&path("llama31_rope")).unwrap();
                    let decoder =
                        Decoder::load_with(&checkpoint, dtype, Device::Cpu, products).unwrap();
                    let sequences: Vec<_> = windows("llama31_rope")
                        .batch
                        .iter()
                        .cycle()
                        .take(20)
                        .map(Window::sequence)
                        .collect();
                    score(&decoder, &sequences)
                });
                scored.join().unwrap()
            };
            let alone = of(1);
            for threads in [2, 3] {
                assert_eq!(
                    of(threads),
                    alone,
                    "{dtype:?}, {products}, {threads} threads"
                );
            }
        }
    }
}

/// More windows than one smallest product and one head chunk hold, of several lengths.
#[test]
fn company_and_order_change_a_window_by_rounding_only() {
    let (decoder, windows) = (
        decoder("llama31_rope", Dtype::Float32),
        windows("llama31_rope"),
    );
    let mut sequences: Vec<_> = (0..4)
        .flat_map(|_| windows.batch.iter().map(Window::sequence))
        .collect();
    assert!(sequences.iter().map(|s| s.input.len()).sum::<usize>() > 2 * MIN_GEMM_ROWS);
    let wanted: Vec<_> = sequences
        .iter()
        .map(|sequence| score(&decoder, std::slice::from_ref(sequence)).remove(0))
        .collect();
    let forward = score(&decoder, &sequences);
    sequences.reverse();
    let mut backward = score(&decoder, &sequences);
    backward.reverse();
    for ((forward, backward), wanted) in forward.iter().zip(&backward).zip(&wanted) {
        assert!(
            distance(forward, wanted) < 2e-5,
            "{}",
            distance(forward, wanted)
        );
        assert!(
            distance(backward, wanted) < 2e-5,
            "{}",
            distance(backward, wanted)
        );
    }
}

#[test]
fn bfloat16_is_near_float32() {
    let all = Products::available(Dtype::Bfloat16);
    for (case, products) in CASES
        .iter()
        .flat_map(|case| all.iter().map(move |p| (case, *p)))
    {
        let sequence = windows(case).single.sequence();
        let mean = |dtype, products| {
            let decoder = load_with(&path(case), dtype, products);
            let values = score(&decoder, std::slice::from_ref(&sequence)).remove(0);
            values.iter().sum::<f64>() / values.len() as f64
        };
        let exact = mean(Dtype::Float32, Products::best(Dtype::Float32));
        let rounded = mean(Dtype::Bfloat16, products);
        assert!(
            (rounded / exact - 1.0).abs() < 0.03,
            "{case}, {products}: {rounded} is far from {exact}"
        );
        assert!(
            (rounded - exact).abs() > 1e-6,
            "{case}, {products}: not computed in bfloat16"
        );
    }
}

#[test]
fn what_the_model_cannot_read_is_refused() {
    let decoder = decoder("llama_gqa", Dtype::Float32);
    let outside = Sequence {
        input: vec![1, 1_000_000],
        positions: vec![0],
        targets: vec![1],
    };
    let error = decoder.score(&[outside]).unwrap_err();
    assert!(
        matches!(error, DecoderError::Sequence { sequence: 0, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("1000000"), "{error}");
}

/// A copy of a float32 case in which the first number of one tensor is NaN.
fn poisoned(case: &str, tensor: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::copy(path(case).join(file), directory.path().join(file)).unwrap();
    }
    let mut weights = fs::read(path(case).join("model.safetensors")).unwrap();
    let header = usize::try_from(u64::from_le_bytes(weights[..8].try_into().unwrap())).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&weights[8..8 + header]).unwrap();
    assert_eq!(index[tensor]["dtype"], "F32", "{tensor}");
    let start = index[tensor]["data_offsets"][0].as_u64().unwrap();
    let start = 8 + header + usize::try_from(start).unwrap();
    weights[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(directory.path().join("model.safetensors"), weights).unwrap();
    directory
}

#[test]
fn a_weight_that_is_not_a_number_is_never_hidden() {
    let sequence = windows("llama_gqa").single.sequence();
    for weight in [
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.1.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    ] {
        let directory = poisoned("llama_gqa", weight);
        for dtype in [Dtype::Float32, Dtype::Bfloat16] {
            let decoder = load(directory.path(), dtype);
            let values = score(&decoder, std::slice::from_ref(&sequence)).remove(0);
            assert!(
                values.iter().all(|value| value.is_nan()),
                "{weight} {dtype:?}: {values:?}"
            );
        }
    }
}
