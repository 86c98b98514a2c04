//! Prints what the decoder says of given token ids, for comparison with another program.
//!
//! ```text
//! cargo run --release -p assay-decoder --example nll -- MODEL... < windows.json
//! ```
//!
//! Standard input is a JSON list of windows, each a list of ids. For each model a line is printed:
//! the path, a tab, and a JSON list with one list per window of the negative log-likelihoods, in
//! nats, of all its ids but the first; or `error: ` and why the model is refused. float32, one
//! thread, every window alone.

use std::path::Path;

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, DecoderError, Sequence, runtime};
use tch::Device;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    runtime::init(1)?;
    let windows: Vec<Vec<u32>> = serde_json::from_reader(std::io::stdin())?;
    for model in std::env::args().skip(1) {
        match score(Path::new(&model), &windows) {
            Ok(values) => println!("{model}\t{}", serde_json::to_string(&values)?),
            Err(error) => println!("{model}\terror: {error}"),
        }
    }
    Ok(())
}

fn score(model: &Path, windows: &[Vec<u32>]) -> Result<Vec<Vec<f64>>, DecoderError> {
    let checkpoint = Checkpoint::open(model)?;
    let decoder = Decoder::load(&checkpoint, Dtype::Float32, Device::Cpu)?;
    let alone = |ids: &Vec<u32>| {
        let targets: Vec<u32> = ids.iter().skip(1).copied().collect();
        let sequence = Sequence {
            input: ids[..targets.len()].to_vec(),
            positions: (0..).take(targets.len()).collect(),
            targets,
        };
        Ok(decoder.score(&[sequence])?.remove(0))
    };
    windows.iter().map(alone).collect()
}
