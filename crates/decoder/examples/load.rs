//! Measures the peak of memory while a checkpoint is loaded, and how long it takes.
//!
//! ```text
//! cargo run --release -p assay-decoder --example load -- [MODEL] [dtype]
//! ```
//!
//! Prints a line `peak <bytes> weights <bytes> seconds <seconds>`: the largest resident set of the
//! process so far, which is what `/usr/bin/time` prints, the bytes that the weights take in this
//! dtype, and the time from opening to the last weight. Without a model, those of a process that
//! has libtorch and nothing else.

use std::path::Path;
use std::time::Instant;
use std::{env, fs};

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, runtime};
use tch::{Device, Kind, Tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let dtype = match arguments.get(1).map(String::as_str) {
        None | Some("float32") => Dtype::Float32,
        Some("bfloat16") => Dtype::Bfloat16,
        Some(other) => return Err(format!("{other} is no dtype").into()),
    };
    runtime::init(1)?;
    // Code and tables of libtorch come into memory with its first products.
    let small = Tensor::f_ones([64, 64], (Kind::Float, Device::Cpu))?;
    let _ = small.f_matmul(&small)?.f_to_kind(Kind::BFloat16)?;

    let start = Instant::now();
    let (weights, decoder) = match arguments.first() {
        None => (0, None),
        Some(model) => {
            let checkpoint = Checkpoint::open(Path::new(model))?;
            let decoder = Decoder::load(&checkpoint, dtype, Device::Cpu)?;
            (checkpoint.parameters() * dtype.bytes(), Some(decoder))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    drop(decoder);
    println!("peak {} weights {weights} seconds {seconds:.2}", peak()?);
    Ok(())
}

/// The largest resident set of this process so far, in bytes.
fn peak() -> Result<u64, Box<dyn std::error::Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("the kernel does not say")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}
