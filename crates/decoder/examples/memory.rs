//! Measures the memory of a micro-batch against what the decoder says of it beforehand.
//!
//! ```text
//! MALLOC_MMAP_THRESHOLD_=65536 MALLOC_TRIM_THRESHOLD_=65536 \
//!     cargo run --release -p assay-decoder --example memory -- \
//!     MODEL [threads] [dtype] [window] [windows]
//! ```
//!
//! The defaults are 1 thread, float32 and 2 windows of 1024 inputs. The variables keep glibc from
//! holding freed memory back, which would hide what is used. Prints the growth of the resident set
//! from after loading to its peak, the estimate, and their ratio; and the same of loading.

use std::path::Path;
use std::{env, fs};

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, Sequence, runtime, weight_bytes};
use tch::Device;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, options @ ..] = arguments.as_slice() else {
        return Err("usage: memory MODEL [threads] [dtype] [window] [windows]".into());
    };
    let number = |index: usize, default: usize| {
        options
            .get(index)
            .map_or(Ok(default), |option| option.parse())
    };
    let (threads, window, windows) = (number(0, 1)?, number(2, 1024)?, number(3, 2)?);
    let dtype = match options.get(1).map(String::as_str) {
        None | Some("float32") => Dtype::Float32,
        Some("bfloat16") => Dtype::Bfloat16,
        Some(other) => return Err(format!("{other} is no dtype").into()),
    };

    runtime::init(threads)?;
    let checkpoint = Checkpoint::open(Path::new(model))?;
    let before = resident("RssAnon:")?;
    let decoder = Decoder::load(&checkpoint, dtype, Device::Cpu)?;
    report(
        "weights",
        resident("RssAnon:")? - before,
        weight_bytes(&checkpoint, dtype),
    );

    let sequence = Sequence {
        input: vec![1; window],
        positions: (0..).take(window).collect(),
        targets: vec![1; window],
    };
    let micro_batch = vec![sequence; windows];
    let estimate = decoder.memory_needed(micro_batch.iter().map(|s| s.input.len()));
    for _ in 0..2 {
        let before = resident("VmRSS:")?;
        fs::write("/proc/self/clear_refs", "5")?; // the peak starts anew
        decoder.score(&micro_batch)?;
        report("activations", resident("VmHWM:")? - before, estimate);
    }
    Ok(())
}

fn report(what: &str, used: u64, estimate: u64) {
    let ratio = estimate as f64 / used as f64;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!(
        "{what}: used {:.1} MB, estimated {:.1} MB, ratio {ratio:.2}",
        megabytes(used),
        megabytes(estimate),
    );
}

/// A field of the process's status, in bytes.
fn resident(field: &str) -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .ok_or("the kernel does not say")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024)
}
