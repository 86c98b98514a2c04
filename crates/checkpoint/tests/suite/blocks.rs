//! Quantised blocks against the `gguf` Python package.

use std::collections::BTreeMap;

use assay_checkpoint::{Checkpoint, Place, Slot, WeightDtype, inspect};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::gguf_file::{GgufFile, Meta};

/// A format in tests/data/blocks.json, which tests/reference/blocks.py makes.
#[derive(Deserialize)]
struct Reference {
    ggml_type: u32,
    block_bytes: usize,
    /// Where a block has float16 numbers.
    halves: Vec<usize>,
    /// The first six blocks, whose float16 numbers are chosen.
    edges: String,
    /// The values of the first blocks.
    values: String,
    /// Of the values of all blocks.
    sha256: String,
}

fn references() -> BTreeMap<String, Reference> {
    let file: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../data/blocks.json")).unwrap();
    let formats = file.into_iter().filter(|(_, value)| value.is_object());
    formats
        .map(|(name, value)| (name, serde_json::from_value(value).unwrap()))
        .collect()
}

fn bytes(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// The blocks of a format: those at the edges, then random ones whose float16 numbers are finite.
fn stored(name: &str, format: &Reference, length: usize) -> Vec<u8> {
    let digests = (0..length.div_ceil(32)).flat_map(|at| Sha256::digest(format!("{name} {at}")));
    let mut stored: Vec<u8> = digests.take(length).collect();
    for block in stored.chunks_exact_mut(format.block_bytes) {
        for at in &format.halves {
            let exponent = &mut block[at + 1];
            if *exponent & 0x7c == 0x7c {
                *exponent ^= 0x40;
            }
        }
    }
    let edges = bytes(&format.edges);
    stored[..edges.len()].copy_from_slice(&edges);
    stored
}

/// The fixture with 10752 columns in the matrix that is quantised.
fn wide(ggml_type: u32, data: Vec<u8>) -> GgufFile {
    let columns = 10_752_u32;
    let mut file = GgufFile::of_fixture("llama_gqa");
    file.set("llama.feed_forward_length", Some(Meta::U32(columns)));
    for tensor in &mut file.tensors {
        for size in &mut tensor.shape {
            if tensor.name.contains("ffn_") && *size == 96 {
                *size = columns as usize;
                tensor.data = vec![0; 48 * 4 * columns as usize];
            }
        }
    }
    let down = file.tensor("blk.1.ffn_down.weight");
    assert_eq!(down.shape, [48, 10_752]);
    down.kind = ggml_type;
    down.data = data;
    file
}

#[test]
fn blocks_are_dequantised_to_the_same_bits() {
    let references = references();
    assert_eq!(references.len(), 11);
    for (name, format) in &references {
        let elements = if format.block_bytes < 64 { 32 } else { 256 };
        let length = 48 * 10_752 / elements * format.block_bytes;
        let data = stored(name, format, length);
        let (_dir, path) = wide(format.ggml_type, data).write();
        let checkpoint = Checkpoint::open(&path).unwrap();
        let weight = checkpoint.weight(Slot::block(1, Place::Down)).unwrap();
        assert_eq!(weight.dtype(), WeightDtype::F32);
        assert_eq!(weight.shape(), [48, 10_752]);
        let first = bytes(&format.values);
        assert_eq!(weight.bytes()[..first.len()], first, "{name}");
        let digest = Sha256::digest(weight.bytes());
        assert_eq!(*digest, *bytes(&format.sha256), "{name}");
        let stored = inspect(&checkpoint, "x").unwrap().stored;
        assert!(stored.iter().any(|part| part.dtype == *name), "{name}");
    }
}
