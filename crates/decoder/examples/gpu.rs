//! Checks the decoder on a GPU: started by `bench/gpu`, which sets this up.
//!
//! ```text
//! cargo run --release -p assay-decoder --example gpu -- FIXTURES FOLDER
//! ```
//!
//! FIXTURES is `tests/fixtures`; in FOLDER a checkpoint of 1.2 billion parameters is made (2.5 GB).
//! In this order: every family in float32 against transformers, and once more with equal bits; the
//! checkpoint in bfloat16, window 2048: memory beside what was said of it, equal bits of two runs,
//! tokens per second, and the share of the rate of one large product. Ends with an error if a value,
//! a bit or the memory is not as it should be.

#[path = "../tests/suite/support.rs"]
#[allow(dead_code)]
mod support;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, Sequence, runtime, weight_bytes};
use serde_json::{Map, json};
use support::{Window, agrees, windows_in};
use tch::{Cuda, Device, Kind, Tensor};

type Failure = Box<dyn std::error::Error>;

const GPU: Device = Device::Cuda(0);
/// The shape of Llama 3.2 1B.
const HIDDEN: usize = 2048;
const INTERMEDIATE: usize = 8192;
const BLOCKS: usize = 16;
const HEADS: usize = 32;
const KV_HEADS: usize = 8;
const HEAD_DIM: usize = 64;
const VOCAB_SIZE: usize = 128_256;
const WINDOW: usize = 2048;

fn main() -> Result<(), Failure> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [fixtures, folder] = arguments.as_slice() else {
        return Err("usage: gpu FIXTURES FOLDER".into());
    };
    runtime::load_cuda()?;
    if !Cuda::is_available() {
        return Err("libtorch finds no GPU".into());
    }
    runtime::init(1)?;
    println!("machine: {}", query("name")?);
    println!(
        "driver: {}, libtorch {}",
        query("driver_version")?,
        runtime::libtorch_version()
    );

    let mut cases = 0;
    for part in [".", "families", "gguf"] {
        for entry in fs::read_dir(fixtures.join(part))? {
            let case = entry?.path();
            if case.join("config.json").exists() && !case.ends_with("chat") {
                check(&case)?;
                cases += 1;
            }
        }
    }
    println!("fixtures: {cases} agree with transformers, with equal bits twice");
    measure(folder)
}

/// What `nvidia-smi` says of the first GPU.
fn query(what: &str) -> Result<String, Failure> {
    let output = Command::new("nvidia-smi")
        .args([
            &format!("--query-gpu={what}"),
            "--format=csv,noheader,nounits",
        ])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .lines()
        .next()
        .ok_or("nvidia-smi lists no GPU")?
        .trim()
        .to_owned())
}

/// A fixture in float32, twice.
fn check(case: &Path) -> Result<(), Failure> {
    let windows = windows_in(case);
    let decoder = Decoder::load(&Checkpoint::open(case)?, Dtype::Float32, GPU)?;
    let all: Vec<&Window> = std::iter::once(&windows.single)
        .chain(&windows.batch)
        .collect();
    let sequences: Vec<Sequence> = all.iter().map(|window| window.sequence()).collect();
    let values = decoder.score(&sequences)?;
    for (values, window) in values.iter().zip(&all) {
        agrees(values, &window.nll_f32).map_err(|fault| format!("{}: {fault}", case.display()))?;
    }
    if decoder.score(&sequences)? != values {
        return Err(format!("{}: two runs differ", case.display()).into());
    }
    Ok(())
}

/// Writes the checkpoint: small random numbers in bfloat16.
fn generate(folder: &Path) -> Result<(), Failure> {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
        "vocab_size": VOCAB_SIZE, "max_position_embeddings": WINDOW, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true,
        "torch_dtype": "bfloat16",
    });
    fs::create_dir_all(folder)?;
    fs::write(folder.join("config.json"), config.to_string())?;
    let mut shapes = vec![
        (
            "model.embed_tokens.weight".to_owned(),
            vec![VOCAB_SIZE, HIDDEN],
        ),
        ("model.norm.weight".to_owned(), vec![HIDDEN]),
    ];
    for block in 0..BLOCKS {
        for (name, shape) in [
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
            ("self_attn.q_proj", vec![HEADS * HEAD_DIM, HIDDEN]),
            ("self_attn.k_proj", vec![KV_HEADS * HEAD_DIM, HIDDEN]),
            ("self_attn.v_proj", vec![KV_HEADS * HEAD_DIM, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HEADS * HEAD_DIM]),
            ("mlp.gate_proj", vec![INTERMEDIATE, HIDDEN]),
            ("mlp.up_proj", vec![INTERMEDIATE, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, INTERMEDIATE]),
        ] {
            shapes.push((format!("model.layers.{block}.{name}.weight"), shape));
        }
    }
    let mut header = Map::new();
    let mut end = 0;
    for (name, shape) in &shapes {
        let start = end;
        end += 2 * shape.iter().product::<usize>();
        header.insert(
            name.clone(),
            json!({"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}),
        );
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = BufWriter::new(File::create(folder.join("model.safetensors"))?);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut state = 1_u32;
    for (_, shape) in &shapes {
        // Norms are near one, matrices keep the size of what they multiply.
        let (middle, size) = match shape[..] {
            [_, inputs] => (0.0, (12.0 / inputs as f32).sqrt()),
            _ => (1.0, 0.1),
        };
        for _ in 0..shape.iter().product::<usize>() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = middle + size * ((state >> 8) as f32 / (1 << 24) as f32 - 0.5);
            file.write_all(&number.to_bits().to_le_bytes()[2..])?;
        }
    }
    Ok(file.flush()?)
}

fn measure(folder: &Path) -> Result<(), Failure> {
    if !folder.join("model.safetensors").exists() {
        generate(folder)?;
    }
    let checkpoint = Checkpoint::open(folder)?;
    let decoder = Decoder::load(&checkpoint, Dtype::Bfloat16, GPU)?;
    let weights = weight_bytes(&checkpoint, Dtype::Bfloat16);
    let sequence = |window: usize| Sequence {
        input: (0..WINDOW).map(|at| token(window, at)).collect(),
        positions: (0..).take(WINDOW).collect(),
        targets: (1..=WINDOW).map(|at| token(window, at)).collect(),
    };
    let peak = product_rate()?;
    println!(
        "one product of 8192^3 in bfloat16: {:.1} TFLOP/s",
        peak / 1e12
    );
    // 2,048 tokens are what a plan makes of a window; more show what larger micro-batches would give.
    for windows in [1, 4] {
        let micro_batch: Vec<Sequence> = (0..windows).map(sequence).collect();
        let values = decoder.score(&micro_batch)?;
        if !values.iter().flatten().all(|nll| nll.is_finite()) {
            return Err("an NLL is not a number".into());
        }
        if decoder.score(&micro_batch)? != values {
            return Err(format!("{windows} windows: two runs differ").into());
        }
        let said = weights + decoder.memory_needed((0..windows).map(|_| WINDOW));
        let used = query("memory.used")?.parse::<u64>()? << 20;
        println!(
            "{windows} windows: memory {} MB, said {} MB",
            used >> 20,
            said >> 20
        );
        // The context of CUDA and the workspaces of cuBLAS are no part of the estimate.
        if used > said + (2 << 30) {
            return Err("more memory than was said".into());
        }
        let mut fastest = Duration::MAX;
        for _ in 0..10 {
            let started = Instant::now();
            decoder.score(&micro_batch)?;
            fastest = fastest.min(started.elapsed());
        }
        let rate = (windows * WINDOW) as f64 / fastest.as_secs_f64();
        let share = rate * flops_per_token() / peak;
        println!(
            "{windows} windows: {rate:.0} tokens/s, {:.1} % of that product",
            100.0 * share
        );
    }
    Ok(())
}

fn token(window: usize, at: usize) -> u32 {
    u32::try_from((window * 7919 + at * 104_729) % VOCAB_SIZE).unwrap_or(0)
}

/// Operations a token: products with weights, and attention to half a window.
fn flops_per_token() -> f64 {
    let attention = (2 * HEADS + 2 * KV_HEADS) * HEAD_DIM * HIDDEN;
    let block = attention + 3 * HIDDEN * INTERMEDIATE;
    let scores = HEADS * HEAD_DIM * WINDOW;
    2.0 * (BLOCKS * (block + scores) + VOCAB_SIZE * HIDDEN) as f64
}

/// Operations a second of a large product: what the GPU does at best.
fn product_rate() -> Result<f64, Failure> {
    const SIZE: i64 = 8192;
    let options = (Kind::BFloat16, GPU);
    let (a, b) = (
        Tensor::f_ones([SIZE, SIZE], options)?,
        Tensor::f_ones([SIZE, SIZE], options)?,
    );
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        Cuda::synchronize(0);
        let started = Instant::now();
        let _product = a.f_matmul(&b)?;
        Cuda::synchronize(0);
        fastest = fastest.min(started.elapsed());
    }
    Ok(2.0 * (SIZE as f64).powi(3) / fastest.as_secs_f64())
}
