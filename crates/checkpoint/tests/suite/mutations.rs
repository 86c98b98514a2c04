//! Random damage: whatever the bytes, a checkpoint opens or is refused; nothing panics.

use std::fs;

use assay_checkpoint::Checkpoint;
use proptest::prelude::*;

use crate::gguf_file::GgufFile;
use crate::sandbox::Sandbox;

/// Where in a region, as a fraction, and the byte that goes there.
fn edits() -> impl Strategy<Value = Vec<(f64, u8)>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(b'"'), Just(b'9')];
    prop::collection::vec((0.0..1.0, byte), 1..8)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a fraction of a length
fn apply(bytes: &mut [u8], region: usize, edits: &[(f64, u8)]) {
    let region = region.min(bytes.len());
    for (place, byte) in edits {
        bytes[(place * region as f64) as usize] = *byte;
    }
}

/// Opens the checkpoint and touches everything that reads from it.
fn exercise(path: &std::path::Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else {
        return;
    };
    for (slot, shape) in checkpoint.architecture().slots() {
        let weight = checkpoint.weight(slot).unwrap();
        assert_eq!(weight.shape(), shape);
        let _ = weight.bytes();
    }
    if let Ok(tokenizer) = checkpoint.tokenizer() {
        // A damaged vocabulary may have no token for this.
        let _ = tokenizer.encode("The ferry leaves at 7:45");
    }
}

/// Failures print their input; a file of seeds in the source tree is not wanted.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn safetensors_headers(edits in edits(), cut in prop::option::of(0.0..1.0_f64)) {
        let sandbox = Sandbox::of("llama_gqa");
        sandbox.edit("model.safetensors", |bytes| {
            let header = 8 + usize::from(bytes[0]) + 256 * usize::from(bytes[1]);
            apply(bytes, header, &edits);
            if let Some(cut) = cut {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                bytes.truncate((cut * bytes.len() as f64) as usize);
            }
        });
        exercise(sandbox.path());
    }

    #[test]
    fn json_files(edits in edits(), which in 0..4_usize) {
        let sandbox = Sandbox::of("sharded_llama");
        let name = [
            "config.json",
            "model.safetensors.index.json",
            "tokenizer_config.json",
            "tokenizer.json",
        ][which];
        sandbox.edit(name, |bytes| apply(bytes, usize::MAX, &edits));
        exercise(sandbox.path());
    }

    #[test]
    fn gguf_headers(edits in edits(), cut in prop::option::of(0.0..1.0_f64)) {
        let (_dir, path) = GgufFile::of_fixture("llama_tied").write();
        let mut bytes = fs::read(&path).unwrap();
        // The metadata's numbers and the descriptions of tensors; tokens lie between them.
        let header = 8 * 1024;
        apply(&mut bytes, header, &edits);
        if let Some(cut) = cut {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        fs::write(&path, bytes).unwrap();
        exercise(&path);
    }
}
