//! Tokenizers that are kept are those that would be built.

use std::fs;

use assay_checkpoint::{Checkpoint, CheckpointError, Preview, TextTokenizer, Tokenizers};
use serde_json::json;

use crate::gguf_file::{GgufFile, Meta};
use crate::sandbox::Sandbox;
use crate::sentencepiece;

/// What tells two tokenizers apart.
fn facts(tokenizer: &TextTokenizer) -> (String, Option<u32>, Vec<u32>) {
    let ids = tokenizer.encode("0 0 6 4 and more").unwrap();
    (tokenizer.digest().to_owned(), tokenizer.bos(), ids)
}

/// The kept tokenizer, held against one that is built anew.
fn of(kept: &Tokenizers, sandbox: &Sandbox) -> (String, Option<u32>, Vec<u32>) {
    let checkpoint = Checkpoint::open(sandbox.path()).unwrap();
    let preview = Preview::open(sandbox.path(), "model").unwrap();
    let found = facts(&kept.of(&checkpoint).unwrap());
    assert_eq!(found, facts(&checkpoint.tokenizer().unwrap()));
    assert_eq!(found, facts(&kept.of_preview(&preview).unwrap()));
    found
}

#[test]
fn a_file_that_is_changed_makes_another_tokenizer() {
    let kept = Tokenizers::default();
    let sandbox = Sandbox::of("llama_gqa");
    let first = of(&kept, &sandbox);
    assert_eq!(of(&kept, &sandbox), first);
    let tokenizer = fs::read(sandbox.file("tokenizer.json")).unwrap();

    // Of the same length, so that nothing but the bytes tells.
    sandbox.edit("tokenizer.json", |bytes| {
        let at = |what: &[u8]| bytes.windows(what.len()).position(|part| part == what);
        let (zero, one) = (at(b"\"0\":18").unwrap(), at(b"\"1\":19").unwrap());
        bytes[zero + 1] = b'1';
        bytes[one + 1] = b'0';
    });
    let changed = of(&kept, &sandbox);
    assert_ne!(changed.2, first.2);
    sandbox.write("tokenizer.json", &tokenizer);
    assert_eq!(of(&kept, &sandbox), first);

    sandbox.edit_json("tokenizer_config.json", |config| {
        config.insert("bos_token".to_owned(), json!("</s>"));
    });
    assert_eq!(of(&kept, &sandbox).1, Some(2));
}

#[test]
fn a_model_and_what_is_beside_it_decide_together() {
    let kept = Tokenizers::default();
    let sandbox = sentencepiece::sandbox("llama");
    let first = of(&kept, &sandbox);
    sandbox.write("tokenizer_config.json", r#"{"add_prefix_space": false}"#);
    let changed = of(&kept, &sandbox);
    assert_ne!(changed.2, first.2);
    sandbox.remove("tokenizer_config.json");
    assert_eq!(of(&kept, &sandbox), first);
}

#[test]
fn a_gguf_header_that_is_changed_makes_another_tokenizer() {
    let kept = Tokenizers::default();
    let mut file = GgufFile::of_fixture("llama_gqa");
    let mut bos_of = |bos: u32| {
        file.set("tokenizer.ggml.bos_token_id", Some(Meta::U32(bos)));
        let (_dir, path) = file.write();
        let checkpoint = Checkpoint::open(&path).unwrap();
        let found = facts(&kept.of(&checkpoint).unwrap());
        assert_eq!(found, facts(&checkpoint.tokenizer().unwrap()));
        found.1
    };
    assert_eq!([1, 2, 1].map(&mut bos_of), [1, 2, 1].map(Some));
}

/// Its header was read before it was written, and is mapped: who opens the file then must not get
/// a tokenizer of both.
#[test]
fn a_gguf_file_that_was_written_since_it_was_opened_leaves_nothing_behind() {
    let kept = Tokenizers::default();
    let mut file = GgufFile::of_fixture("llama_gqa");
    let (_dir, path) = file.write();
    let before = Checkpoint::open(&path).unwrap();
    file.set("tokenizer.ggml.bos_token_id", Some(Meta::U32(2)));
    let (_other, changed) = file.write();
    fs::copy(&changed, &path).unwrap();
    // What it answers is of no matter: its digest is refused.
    let _ = kept.of(&before);
    let after = Checkpoint::open(&path).unwrap();
    assert_eq!(kept.of(&after).unwrap().bos(), Some(2));
}

#[test]
fn errors_name_the_file_that_was_asked_for() {
    let kept = Tokenizers::default();
    let sandbox = Sandbox::of("llama_gqa");
    sandbox.remove("tokenizer_config.json");
    sandbox.remove("special_tokens_map.json");
    let name_of = |name: &str| {
        let preview = Preview::open(sandbox.path(), name).unwrap();
        match kept.of_preview(&preview).unwrap().prefix() {
            Err(CheckpointError::NoPrefixToken { file }) => file,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(name_of("org/one"), "org/one/tokenizer.json");
    assert_eq!(name_of("org/two"), "org/two/tokenizer.json");
}
