//! How much memory it takes to open a GGUF file, whatever its header claims.

mod counting;

use std::fs;
use std::path::Path;

use assay_checkpoint::Checkpoint;

use counting::most;

fn header(tensors: u64, values: u64) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(values.to_le_bytes());
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// An array under a key, with elements of a type; the number is what it claims.
fn array(bytes: &mut Vec<u8>, key: &str, kind: u32, count: u64) {
    text(bytes, key);
    bytes.extend(9_u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(count.to_le_bytes());
}

/// Files of the smallest things a header can have, which are the largest in memory for their size.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    // One more than a vector that grows by doubling has room for.
    let count = 65_537_u64;
    let mut values = header(0, count);
    for index in 0..count {
        text(&mut values, &format!("{index:x}"));
        values.extend([0, 0, 0, 0, 7]);
    }
    let mut tensors = header(count, 0);
    let mut unsupported = header(count, 0);
    for index in 0..count {
        for (bytes, kind) in [(&mut tensors, 0_u32), (&mut unsupported, u32::MAX)] {
            text(bytes, &format!("{index:x}"));
            bytes.extend(0_u32.to_le_bytes());
            bytes.extend(kind.to_le_bytes());
            bytes.extend(0_u64.to_le_bytes());
        }
    }
    let mut texts = header(0, 1);
    array(&mut texts, "tokenizer.ggml.tokens", 8, count);
    texts.resize(texts.len() + 8 * 65_537, 0);
    let mut cases = vec![
        ("values", values),
        ("tensors", tensors),
        ("unsupported tensors", unsupported),
        ("texts", texts),
    ];
    for claimed in [u64::MAX, 1 << 40] {
        let mut bytes = header(claimed, 0);
        bytes.resize(1 << 20, 0);
        cases.push(("a claimed number of tensors", bytes));
        let mut bytes = header(0, claimed);
        bytes.resize(1 << 20, 0);
        cases.push(("a claimed number of values", bytes));
        for kind in [0, 8, 9] {
            let mut bytes = header(0, 1);
            array(&mut bytes, "x", kind, claimed);
            bytes.resize(1 << 20, 0);
            cases.push(("a claimed number of elements", bytes));
        }
        let mut bytes = header(0, 1);
        text(&mut bytes, "x");
        bytes.extend(8_u32.to_le_bytes());
        bytes.extend(claimed.to_le_bytes());
        bytes.resize(1 << 20, 0);
        cases.push(("a claimed length", bytes));
    }
    cases
}

/// The factor that gguf/header.rs states.
const FACTOR: usize = 16;

#[test]
fn headers_take_no_more_than_a_multiple_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    for (name, bytes) in hostile() {
        fs::write(&path, &bytes).unwrap();
        let used = most(|| assert!(Checkpoint::open(&path).is_err()));
        assert!(
            used <= FACTOR * bytes.len(),
            "{name}: {used} bytes for a file of {}",
            bytes.len()
        );
    }
}

/// A field of a protobuf message: its key and its bytes.
fn field(message: &mut Vec<u8>, key: u8, bytes: &[u8]) {
    message.push(key);
    let length = bytes.len();
    message.extend([
        u8::try_from(length & 0x7f).unwrap() | 0x80,
        u8::try_from(length >> 7).unwrap(),
    ]);
    message.extend(bytes);
}

/// What the documentation of tests/fuzz/main.rs states for tokenizers.
const TOKENIZER_FACTOR: usize = 512;

/// Each piece is any shorter one and another, so their merges are longer than they by a factor
/// that grows with the longest.
#[test]
fn pieces_that_can_be_cut_anywhere_take_no_more_than_a_multiple_of_the_file() {
    for longest in [16, 60, 128, 512, 1024] {
        let mut model = Vec::new();
        for length in 1..=longest {
            let mut piece = Vec::new();
            field(&mut piece, 0x0a, &vec![b'a'; length]);
            field(&mut model, 0x0a, &piece);
        }
        field(&mut model, 0x12, &[0x18, 2]);
        let dir = tempfile::tempdir().unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/llama_gqa");
        for name in ["config.json", "model.safetensors"] {
            fs::copy(fixture.join(name), dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("tokenizer.model"), &model).unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let used = most(|| {
            // Longer ones are refused.
            assert_eq!(checkpoint.tokenizer().is_ok(), longest < 128);
        });
        assert!(
            used <= TOKENIZER_FACTOR * model.len() + (1 << 20),
            "{longest}: {used} bytes for a file of {}",
            model.len()
        );
    }
}
