//! Random damage: whatever the bytes, a checkpoint opens or is refused; nothing panics.

use std::fs;

use assay_checkpoint::Checkpoint;
use proptest::prelude::*;

use crate::gguf_file::{GgufFile, Meta};
use crate::gguf_tokenizers::scored_file;
use crate::sandbox::Sandbox;

/// Where in a region, as a fraction, and the byte that goes there.
fn edits() -> impl Strategy<Value = Vec<(f64, u8)>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(b'"'), Just(b'9')];
    prop::collection::vec((0.0..1.0, byte), 1..8)
}

/// Bytes of which some are the small numbers that lengths, types and counts are made of.
fn meaningless() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0), 3 => 0..16_u8, 1 => any::<u8>()]
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

    /// Metadata, tokenizers of both kinds included, and descriptions of tensors.
    #[test]
    fn gguf_headers(
        edits in edits(),
        scored in any::<bool>(),
        cut in prop::option::of(0.0..1.0_f64),
    ) {
        let file = if scored { scored_file() } else { GgufFile::of_fixture("llama_tied") };
        let (_dir, path) = file.write();
        let mut bytes = fs::read(&path).unwrap();
        let header = bytes.len() - file.data_bytes();
        apply(&mut bytes, header, &edits);
        if let Some(cut) = cut {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        fs::write(&path, bytes).unwrap();
        exercise(&path);
    }

    #[test]
    fn gguf_bytes_of_no_meaning(
        counts in (0..4_u64, 0..4_u64),
        claims in prop::option::of(any::<(u64, u64)>()),
        bytes in prop::collection::vec(meaningless(), 0..400),
    ) {
        let (tensors, values) = claims.unwrap_or(counts);
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(tensors.to_le_bytes());
        file.extend(values.to_le_bytes());
        file.extend(bytes);
        let sandbox = Sandbox::of("llama_gqa");
        sandbox.write("model.gguf", file);
        exercise(&sandbox.file("model.gguf"));
    }

    /// Any metadata of a tokenizer, in a file that is sound otherwise.
    #[test]
    fn gguf_vocabularies(
        scored in any::<bool>(),
        tokens in prop::collection::vec("[ab\u{2581} ]{0,4}|<0x0A>|\\PC{0,3}", 1..40),
        types in prop::collection::vec(0..8_i32, 0..40),
        scores in prop::collection::vec(any::<f32>(), 0..40),
        merges in prop::collection::vec("[ab ]{1,3} [ab]{0,3}", 0..10),
        ids in any::<(u32, Option<u32>)>(),
        text in "[ab \n\u{2581}]{0,20}",
    ) {
        let mut file = GgufFile::of_fixture("llama_gqa");
        let mut set = |key: &str, value| file.set(&format!("tokenizer.ggml.{key}"), Some(value));
        let matching = |mut scores: Vec<f32>| {
            scores.resize(tokens.len(), -1.0);
            scores
        };
        set("model", Meta::Text(if scored { "llama" } else { "gpt2" }.into()));
        set("scores", Meta::F32s(matching(scores)));
        let mut types = types;
        types.resize(tokens.len(), 1);
        set("token_type", Meta::I32s(types));
        set("tokens", Meta::Texts(tokens));
        set("merges", Meta::Texts(merges));
        set("bos_token_id", Meta::U32(ids.0 % 64));
        if let Some(id) = ids.1 {
            set("unknown_token_id", Meta::U32(id % 64));
        }
        let (_dir, path) = file.write();
        if let Ok(tokenizer) = Checkpoint::open(&path).unwrap().tokenizer() {
            let _ = tokenizer.encode(&text);
        }
    }
}
