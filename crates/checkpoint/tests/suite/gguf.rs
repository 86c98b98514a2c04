//! GGUF files made from fixtures: the same weights and tokens must come out.

use assay_checkpoint::{Checkpoint, DigestCache, Place, RopeScaling, Slot, WeightDtype};

use crate::gguf_file::{GgufFile, Meta, Tensor, interleave};
use crate::sandbox::{contents, expected, fixture};

#[test]
fn weights_and_architecture_survive_conversion() {
    for case in ["llama_gqa", "llama_tied"] {
        let original = Checkpoint::open(&fixture(case)).unwrap();
        for version in [2, 3] {
            let mut file = GgufFile::of_fixture(case);
            file.version = version;
            let (_dir, path) = file.write();
            let converted = Checkpoint::open(&path).unwrap();
            let mut architecture = converted.architecture().clone();
            assert!(
                (architecture.norm_eps - 0.05).abs() < 1e-8,
                "stored in float32"
            );
            architecture.norm_eps = original.architecture().norm_eps;
            assert_eq!(architecture, *original.architecture());
            assert_eq!(converted.parameters(), original.parameters());
            for (slot, _) in architecture.slots() {
                assert_eq!(contents(&converted, slot), contents(&original, slot));
            }
        }
    }
}

#[test]
fn tokens_survive_conversion() {
    for case in ["llama_gqa", "llama_tied"] {
        let (_dir, path) = GgufFile::of_fixture(case).write();
        let tokenizer = Checkpoint::open(&path).unwrap().tokenizer().unwrap();
        let original = Checkpoint::open(&fixture(case))
            .unwrap()
            .tokenizer()
            .unwrap();
        assert_eq!(tokenizer.bos(), original.bos());
        assert!(tokenizer.adds_bos());
        assert_eq!(tokenizer.vocab_size(), original.vocab_size());
        for (name, text) in expected(case)["tokens"].as_object().unwrap() {
            let ids: Vec<u32> = serde_json::from_value(text["without_special"].clone()).unwrap();
            let found = tokenizer.encode(text["text"].as_str().unwrap()).unwrap();
            assert_eq!(found, ids, "{case}, {name}");
        }
    }
}

fn tokenizer_with(key: &str, value: Option<Meta>) -> assay_checkpoint::TextTokenizer {
    let mut file = GgufFile::of_fixture("llama_gqa");
    file.set(&format!("tokenizer.ggml.{key}"), value);
    let (_dir, path) = file.write();
    Checkpoint::open(&path).unwrap().tokenizer().unwrap()
}

/// The fixture merges `0 0` and `6 4`, which tells the pre-tokenizers apart.
#[test]
fn pre_tokenizers_cut_digits_their_own_way() {
    // As a run, three at a time, one at a time.
    let cases = [
        ("gpt-2", 2),
        ("default", 3),
        ("llama-bpe", 3),
        ("smollm", 4),
        ("qwen2", 4),
    ];
    for (pre, count) in cases {
        let tokenizer = tokenizer_with("pre", Some(Meta::Text(pre.into())));
        assert_eq!(tokenizer.encode("0064").unwrap().len(), count, "{pre}");
    }
    // A file without the key is an old one.
    assert_eq!(tokenizer_with("pre", None).encode("0064").unwrap().len(), 3);
}

#[test]
fn only_qwen2_composes_characters() {
    let tokenizer = |pre: &str| tokenizer_with("pre", Some(Meta::Text(pre.into())));
    let (qwen2, gpt2) = (tokenizer("qwen2"), tokenizer("gpt-2"));
    let (composed, decomposed) = ("\u{e9}", "e\u{301}");
    assert_eq!(
        qwen2.encode(decomposed).unwrap(),
        qwen2.encode(composed).unwrap()
    );
    assert_ne!(
        gpt2.encode(decomposed).unwrap(),
        gpt2.encode(composed).unwrap()
    );
}

/// A BOS is put in front where the key says nothing only for Llama 3.
#[test]
fn adding_a_bos_has_a_default() {
    for (pre, adds) in [("llama-bpe", true), ("gpt-2", false)] {
        let mut file = GgufFile::of_fixture("llama_gqa");
        file.set("tokenizer.ggml.pre", Some(Meta::Text(pre.into())));
        file.set("tokenizer.ggml.add_bos_token", None);
        let (_dir, path) = file.write();
        let tokenizer = Checkpoint::open(&path).unwrap().tokenizer().unwrap();
        assert_eq!(tokenizer.adds_bos(), adds, "{pre}");
    }
}

#[test]
fn added_tokens_are_found_by_their_type() {
    let text = "a<s>b";
    let control = tokenizer_with("add_bos_token", None);
    assert!(!control.adds_bos());
    assert!(control.encode(text).unwrap().contains(&1));
    let plain = tokenizer_with("token_type", None);
    assert!(
        !plain.encode(text).unwrap().contains(&1),
        "without types every token is normal"
    );
    assert_ne!(plain.digest(), control.digest());
    let missing = tokenizer_with("bos_token_id", None);
    assert_eq!((missing.bos(), missing.prefix().unwrap()), (None, 2));
}

#[test]
fn rope_divisors_are_applied() {
    let mut file = GgufFile::of_fixture("llama_gqa");
    let divisors: Vec<f32> = (1_u8..=6).map(f32::from).collect();
    file.tensors.push(Tensor {
        name: "rope_freqs.weight".into(),
        shape: vec![6],
        kind: 0,
        data: divisors
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
    });
    let (_dir, path) = file.write();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let rope = &checkpoint.architecture().ropes()[0];
    assert_eq!(rope.scaling, RopeScaling::Divisors(divisors.clone()));
    let plain = Checkpoint::open(&fixture("llama_gqa")).unwrap();
    let plain = plain.architecture().ropes()[0].frequencies(1);
    let scaled: Vec<f32> = plain
        .iter()
        .zip(divisors)
        .map(|(plain, by)| plain / by)
        .collect();
    assert_eq!(rope.frequencies(1), scaled);
}

/// bf16_llama has rows of two blocks; rows move whole.
#[test]
fn quantised_query_rows_are_put_in_order() {
    let mut file = GgufFile::of_fixture("bf16_llama");
    for tensor in &mut file.tensors {
        tensor.kind = 30;
    }
    // Row r of the model: scale 1 and quants r, so its values are r.
    let rows: Vec<u8> = (0..64_u8)
        .flat_map(|row| std::iter::repeat_n([&[0x00, 0x3c][..], &[row; 32]].concat(), 2))
        .flatten()
        .collect();
    let query = file.tensor("blk.2.attn_q.weight");
    query.kind = 8;
    query.data = interleave(&rows, 4, 16);
    let (_dir, path) = file.write();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let weight = checkpoint.weight(Slot::block(2, Place::Query)).unwrap();
    let expected: Vec<u8> = (0..64_u8)
        .flat_map(|row| std::iter::repeat_n(f32::from(row).to_le_bytes(), 64))
        .flatten()
        .collect();
    assert_eq!(*weight.bytes(), expected);
    let value = checkpoint.weight(Slot::block(2, Place::Value)).unwrap();
    assert_eq!(value.dtype(), WeightDtype::Bf16);
}

#[test]
fn a_file_is_its_own_digest() {
    let (dir, path) = GgufFile::of_fixture("llama_gqa").write();
    let cache = DigestCache::new(&dir.path().join("cache"));
    let digest = Checkpoint::open(&path).unwrap().digest(&cache).unwrap();
    assert_eq!(digest, format!("sha256:{}", cache.file(&path).unwrap()));
}
