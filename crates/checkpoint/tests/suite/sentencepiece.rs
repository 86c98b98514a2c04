//! tokenizer.model against the `sentencepiece` Python package.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use assay_api::ErrorCode;
use assay_checkpoint::{Checkpoint, CheckpointError, TextTokenizer, inspect};
use serde::Deserialize;
use serde_json::json;

use crate::sandbox::Sandbox;

fn data(file: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/sentencepiece");
    data.join(file)
}

/// A checkpoint whose only tokenizer is the model.
pub(crate) fn sandbox(model: &str) -> Sandbox {
    let sandbox = Sandbox::of("llama_gqa");
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    ] {
        sandbox.remove(file);
    }
    let bytes = fs::read(data(&format!("{model}.model"))).unwrap();
    sandbox.write("tokenizer.model", bytes);
    sandbox
}

pub(crate) fn open(sandbox: &Sandbox) -> Result<TextTokenizer, CheckpointError> {
    Checkpoint::open(sandbox.path()).unwrap().tokenizer()
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

/// expected.json is `SentencePieceProcessor.encode` of version 0.2.3, with models trained on Moby
/// Dick: one with the settings of Llama 2's, one with user-defined pieces, and a unigram model.
#[test]
fn ids_are_those_of_sentencepiece() {
    let bytes = fs::read(data("expected.json")).unwrap();
    let expected: BTreeMap<String, Vec<Case>> = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(expected.len(), 3);
    for (model, cases) in &expected {
        let tokenizer = open(&sandbox(model)).unwrap();
        for Case { text, ids } in cases {
            assert_eq!(tokenizer.encode(text).unwrap(), *ids, "{model}, {text:?}");
        }
    }
}

#[test]
fn special_tokens_come_from_the_model_or_the_configuration() {
    let sandbox = sandbox("llama");
    let tokenizer = open(&sandbox).unwrap();
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert!(tokenizer.adds_bos());
    assert_eq!(tokenizer.vocab_size(), 320);
    assert_eq!(tokenizer.encode("<s></s>").unwrap(), [1, 2]);
    let checkpoint = Checkpoint::open(sandbox.path()).unwrap();
    assert_eq!(inspect(&checkpoint, "x").unwrap().tokenizer.kind, "BPE");

    let config = |value: serde_json::Value| {
        sandbox.write("tokenizer_config.json", value.to_string());
        open(&sandbox)
    };
    let without = config(json!({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false}));
    let without = without.unwrap();
    assert!(!without.adds_bos());
    assert_ne!(without.digest(), tokenizer.digest());
    let other = config(json!({"tokenizer_class": "T5Tokenizer"})).unwrap();
    assert!(!other.adds_bos());
    let swapped = config(json!({"bos_token": "</s>", "eos_token": {"content": "<s>"}})).unwrap();
    assert_eq!((swapped.bos(), swapped.eos()), (Some(2), Some(1)));
    assert!(swapped.adds_bos());
    let error = config(json!({"bos_token": "<bos>"})).unwrap_err();
    assert!(error.to_string().contains("<bos>"), "{error}");
}

/// transformers' legacy behaviour puts a space in front of each part between added tokens.
#[test]
fn the_space_in_front_follows_the_configuration() {
    let sandbox = sandbox("llama");
    let always = open(&sandbox).unwrap();
    let config = |value: serde_json::Value| {
        sandbox.write("tokenizer_config.json", value.to_string());
        open(&sandbox).unwrap()
    };
    let first = config(json!({"legacy": false}));
    let never = config(json!({"add_prefix_space": false}));
    let a = |tokenizer: &TextTokenizer| tokenizer.encode("a<s>a").unwrap();
    assert_eq!(a(&always)[0], a(&always)[2]);
    assert_eq!(a(&first)[0], a(&always)[0]);
    assert_eq!(a(&first)[2], a(&never)[2]);
    assert_eq!(a(&never)[0], a(&never)[2]);
    assert_ne!(a(&always)[0], a(&never)[0]);
}

#[test]
fn added_tokens_keep_their_ids() {
    let sandbox = sandbox("llama");
    // The embedding has 320 rows, so the vocabulary loses its last two pieces first.
    sandbox.edit("tokenizer.model", |bytes| without_last_pieces(bytes, 2));
    let plain = open(&sandbox).unwrap();
    assert_eq!(plain.vocab_size(), 318);
    sandbox.write(
        "added_tokens.json",
        json!({"<|im_end|>": 319, "<|im_start|>": 318}).to_string(),
    );
    let added = open(&sandbox).unwrap();
    assert_eq!(added.vocab_size(), 320);
    let ids = added.encode("<|im_start|><|im_end|>").unwrap();
    assert_eq!(ids.iter().filter(|id| **id >= 318).count(), 2);
    sandbox.write(
        "tokenizer_config.json",
        json!({"added_tokens_decoder": {
            "1": {"content": "<s>", "special": true},
            "318": {"content": "<pad>", "special": true, "normalized": false},
        }})
        .to_string(),
    );
    assert_eq!(open(&sandbox).unwrap().encode("<pad>").unwrap(), [318]);
    sandbox.write(
        "tokenizer_config.json",
        json!({"added_tokens_decoder": {"319": {"content": "<pad>"}}}).to_string(),
    );
    let error = open(&sandbox).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenizerUnusable);
    assert!(error.to_string().contains("319"), "{error}");
}

/// Pieces are the fields 1 at the start of the message.
fn without_last_pieces(bytes: &mut Vec<u8>, count: usize) {
    let mut starts = Vec::new();
    let mut at = 0;
    while bytes[at] == 0x0a {
        starts.push(at);
        at += 2 + usize::from(bytes[at + 1]);
    }
    bytes.drain(starts[starts.len() - count]..at);
}

#[test]
fn models_without_an_equivalent_are_refused_by_name() {
    // A trainer_spec or normalizer_spec with one field more; the last one counts.
    let cases: [(&[u8], &str); 5] = [
        (&[0x12, 2, 0x18, 3], "WORD"),
        (&[0x12, 2, 0x18, 4], "CHAR"),
        (&[0x12, 3, 0xc0, 0x01, 1], "treat_whitespace_as_suffix"),
        (&[0x1a, 2, 0x28, 0], "escape_whitespaces"),
        (&[0x0a, 5, 0x0a, 1, b'x', 0x18, 5], "UNUSED"),
    ];
    for (more, part) in cases {
        let sandbox = sandbox("llama");
        sandbox.edit("tokenizer.model", |bytes| bytes.extend_from_slice(more));
        let error = open(&sandbox).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenizerUnusable, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("model/tokenizer.model") && text.contains(part),
            "{text}"
        );
    }
    let sandbox = sandbox("llama");
    for bytes in [
        &b""[..],
        b"not a model",
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
    ] {
        sandbox.write("tokenizer.model", bytes);
        let error = open(&sandbox).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenizerUnusable);
        assert!(error.to_string().contains("SentencePiece"), "{error}");
    }
}

/// Whatever byte is damaged, there is a tokenizer or an error.
#[test]
fn a_damaged_model_cannot_end_the_process() {
    let sandbox = sandbox("llama");
    let whole = fs::read(sandbox.file("tokenizer.model")).unwrap();
    for at in (0..whole.len()).step_by(37) {
        for byte in [0, 0x7f, 0xff, whole[at] ^ 1] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            sandbox.write("tokenizer.model", &bytes);
            if let Ok(tokenizer) = open(&sandbox) {
                let _ = tokenizer.encode("Call me Ishmael.");
            }
        }
    }
}
