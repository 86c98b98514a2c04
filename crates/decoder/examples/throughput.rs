//! Measures a checkpoint's scoring rate against the rate of its matrix products alone.
//!
//! ```text
//! cargo run --release -p assay-decoder --example throughput -- \
//!     build/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf TEXT \
//!     [threads] [dtype] [window] [tokens] [products]
//! ```
//!
//! The defaults are 1 thread, float32, windows of 1024, micro-batches of 2048 tokens, and the fastest
//! products: `libtorch`, `avx2`, `avx512` and `avx512_bf16` are others. The text's
//! first four micro-batches, cut as blocks, are scored: each window's NLL and the total are printed
//! for comparison with another program, then the time of each stage, the fastest micro-batch and the fastest run of the
//! matrix products alone. Run it on an idle machine.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, Products, Sequence, Stage, runtime};
use tch::Device;

const MICRO_BATCHES: usize = 4;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, text, options @ ..] = arguments.as_slice() else {
        let usage = "throughput MODEL TEXT [threads] [dtype] [window] [tokens] [products]";
        return Err(format!("usage: {usage}").into());
    };
    let number = |index: usize, default: usize| {
        options
            .get(index)
            .map_or(Ok(default), |option| option.parse())
    };
    let (threads, window, tokens) = (number(0, 1)?, number(2, 1024)?, number(3, 2048)?);
    let dtype = match options.get(1).map(String::as_str) {
        None | Some("float32") => Dtype::Float32,
        Some("bfloat16") => Dtype::Bfloat16,
        Some(other) => return Err(format!("{other} is no dtype").into()),
    };

    let products = match options.get(4) {
        None => Products::best(dtype),
        Some(name) => {
            let mut available = Products::available(dtype).into_iter();
            let found = available.find(|products| products.to_string() == *name);
            found.ok_or_else(|| format!("{name} has no products of {}", dtype.as_str()))?
        }
    };

    runtime::init(threads)?;
    println!(
        "libtorch {}, {}",
        runtime::libtorch_version(),
        runtime::cpu_capability()
    );
    let checkpoint = Checkpoint::open(Path::new(model))?;
    let ids = checkpoint.tokenizer()?.encode(&fs::read_to_string(text)?)?;
    let windows: Vec<Sequence> = ids
        .chunks_exact(window)
        .take(MICRO_BATCHES * tokens.div_ceil(window))
        .map(|ids| Sequence {
            input: ids[..window - 1].to_vec(),
            positions: (0..).take(window - 1).collect(),
            targets: ids[1..].to_vec(),
        })
        .collect();

    let start = Instant::now();
    let decoder = Decoder::load_with(&checkpoint, dtype, Device::Cpu, products)?;
    println!("loaded in {:.2?}", start.elapsed());

    decoder.start_profile();
    let mut fastest = Duration::MAX;
    let mut total = 0.0;
    for micro_batch in windows.chunks(tokens.div_ceil(window)) {
        let start = Instant::now();
        let values = decoder.score(micro_batch)?;
        fastest = fastest.min(start.elapsed());
        for window in values {
            let nll: f64 = window.iter().sum();
            println!("window {nll:.9}");
            total += nll;
        }
    }
    println!("total {total:.9}");
    if let Some(profile) = decoder.take_profile() {
        for stage in Stage::ALL {
            println!("{:10} {:9.3?}", stage.name(), profile.spent(stage));
        }
    }

    let rows = tokens.div_ceil(window) * window;
    let floor = (0..MICRO_BATCHES)
        .map(|_| {
            let start = Instant::now();
            decoder.products(rows).map(|()| start.elapsed())
        })
        .collect::<Result<Vec<_>, _>>()?;
    let floor = floor.into_iter().min().unwrap_or_default();
    let rate = |time: Duration| rows as f64 / time.as_secs_f64();
    let dtype = dtype.as_str();
    println!("{threads} threads, {dtype}, {products}, micro-batches of {rows} tokens");
    println!("score {fastest:.3?} {:.0} tokens/s", rate(fastest));
    println!("floor {floor:.3?} {:.0} tokens/s", rate(floor));
    Ok(())
}
