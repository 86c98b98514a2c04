//! The parity fixtures, see `tests/fixtures/README.md` at the top of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use assay_api::Dtype;
use assay_checkpoint::Checkpoint;
use assay_decoder::{Decoder, Products, Sequence, runtime};
use serde::Deserialize;
use tch::Device;

/// The checkpoints of the llama family.
pub(crate) const CASES: [&str; 5] = [
    "llama_gqa",
    "llama_tied",
    "llama31_rope",
    "sharded_llama",
    "bf16_llama",
];

#[derive(Deserialize)]
struct Expected {
    windows: Windows,
}

/// Reference values of a case.
#[derive(Deserialize)]
pub(crate) struct Windows {
    /// One window of 96 ids.
    pub(crate) single: Window,
    /// Windows of 17, 64 and 96 ids, each scored alone.
    pub(crate) batch: Vec<Window>,
}

/// Ids, and the negative log-likelihood in nats of each but the first.
#[derive(Deserialize)]
pub(crate) struct Window {
    pub(crate) ids: Vec<u32>,
    pub(crate) nll_f32: Vec<f64>,
}

impl Window {
    /// All ids as input but the last; all ids but the first count.
    pub(crate) fn sequence(&self) -> Sequence {
        let targets = self.ids[1..].to_vec();
        Sequence {
            input: self.ids[..self.ids.len() - 1].to_vec(),
            positions: (0..).take(targets.len()).collect(),
            targets,
        }
    }
}

pub(crate) fn path(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures")
        .join(case)
}

pub(crate) fn windows(case: &str) -> Windows {
    windows_in(&path(case))
}

/// The windows of the reference values in a directory.
pub(crate) fn windows_in(directory: &Path) -> Windows {
    let text = fs::read_to_string(directory.join("expected.json")).unwrap();
    serde_json::from_str::<Expected>(&text).unwrap().windows
}

/// The model of a case on one thread of the CPU.
pub(crate) fn decoder(case: &str, dtype: Dtype) -> Decoder {
    load(&path(case), dtype)
}

pub(crate) fn load(path: &Path, dtype: Dtype) -> Decoder {
    load_with(path, dtype, Products::best(dtype))
}

/// The same, multiplied by those.
pub(crate) fn load_with(path: &Path, dtype: Dtype, products: Products) -> Decoder {
    runtime::init(1).unwrap();
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"));
    Decoder::load_with(&checkpoint, dtype, Device::Cpu, products).unwrap()
}

/// Holds a window against transformers: every token, and the total.
pub(crate) fn agrees(got: &[f64], wanted: &[f64]) -> Result<(), String> {
    if got.len() != wanted.len() {
        return Err(format!("{} values instead of {}", got.len(), wanted.len()));
    }
    for (index, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let bound = 5e-5 * wanted.max(10.0);
        if got.is_nan() || (got - wanted).abs() > bound {
            return Err(format!("token {index}: {got} is not {wanted}"));
        }
    }
    let (got, wanted): (f64, f64) = (got.iter().sum(), wanted.iter().sum());
    if (got - wanted).abs() > 2e-6 * wanted {
        return Err(format!("total {got} is not {wanted}"));
    }
    Ok(())
}
