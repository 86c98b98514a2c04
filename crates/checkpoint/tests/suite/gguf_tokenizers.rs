//! Tokenizers of GGUF files against llama.cpp.

use std::collections::BTreeMap;

use assay_api::ErrorCode;
use assay_checkpoint::{Checkpoint, CheckpointError, TextTokenizer};
use serde::Deserialize;
use serde_json::Value;

use crate::gguf_file::{GgufFile, Meta};

/// tests/data/gguf_tokenizers.json, which tests/reference/gguf_tokenizers.py makes.
#[derive(Deserialize)]
struct Reference {
    texts: Vec<String>,
    gpt2: Vocabulary,
    llama: Vocabulary,
}

#[derive(Deserialize)]
struct Vocabulary {
    keys: Keys,
    results: BTreeMap<String, Outcome>,
}

/// The metadata, below `tokenizer.ggml`.
#[derive(Deserialize)]
struct Keys {
    tokens: Vec<String>,
    token_type: Vec<i32>,
    merges: Option<Vec<String>>,
    scores: Option<Vec<f32>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    /// As under another name.
    Same(String),
    Found {
        /// Keys that only this case has.
        #[serde(default)]
        more: BTreeMap<String, Value>,
        adds_bos: bool,
        ids: Vec<Vec<u32>>,
    },
}

impl Vocabulary {
    /// The keys of a case, whether a BOS is added, and the ids of the texts.
    fn outcome(&self, name: &str) -> (&BTreeMap<String, Value>, bool, &[Vec<u32>]) {
        match &self.results[name] {
            Outcome::Same(name) => self.outcome(name),
            Outcome::Found {
                more,
                adds_bos,
                ids,
            } => (more, *adds_bos, ids),
        }
    }
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../data/gguf_tokenizers.json")).unwrap()
}

/// The fixture with this vocabulary.
fn file(model: &str, keys: &Keys) -> GgufFile {
    let mut file = GgufFile::of_fixture("llama_gqa");
    for name in ["token_embd.weight", "output.weight"] {
        let tensor = file.tensor(name);
        tensor.shape[0] = keys.tokens.len();
        tensor.data = vec![0; keys.tokens.len() * 48 * 4];
    }
    file.metadata
        .retain(|(key, _)| !key.starts_with("tokenizer.ggml."));
    let arrays = [
        ("model", Some(Meta::Text(model.into()))),
        ("tokens", Some(Meta::Texts(keys.tokens.clone()))),
        ("token_type", Some(Meta::I32s(keys.token_type.clone()))),
        ("merges", keys.merges.clone().map(Meta::Texts)),
        ("scores", keys.scores.clone().map(Meta::F32s)),
    ];
    for (key, value) in arrays {
        file.set(&format!("tokenizer.ggml.{key}"), value);
    }
    file
}

/// A file with scored pieces.
pub(crate) fn scored_file() -> GgufFile {
    file("llama", &reference().llama.keys)
}

fn open(file: &GgufFile) -> Result<TextTokenizer, CheckpointError> {
    let (_dir, path) = file.write();
    Checkpoint::open(&path).unwrap().tokenizer()
}

/// Pre-tokenizers that are the models' own where llama.cpp's are not, and characters by which it
/// shows: those that are composed first, marks that belong to words, and a space that is in a
/// range of characters which stand alone.
const OWN: [(&[&str], &[char]); 3] = [
    (
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "megrez",
            "qwen35",
            "olmo",
            "mpt",
        ],
        &['\u{301}'],
    ),
    (&["tekken", "gpt-4o", "llama4"], &['\u{301}', '\u{947}']),
    (&["deepseek-llm", "deepseek-coder"], &['\u{2028}']),
];

/// The vocabulary has tokens across every border that a pre-tokenizer draws, and tokens that
/// merges do not make.
#[test]
fn pre_tokenizers_cut_as_llama_cpp_does() {
    let Reference { texts, gpt2, .. } = reference();
    assert!(gpt2.results.len() > 40);
    for name in gpt2.results.keys() {
        let mut file = file("gpt2", &gpt2.keys);
        file.set("tokenizer.ggml.pre", Some(Meta::Text(name.clone())));
        file.set("tokenizer.ggml.bos_token_id", Some(Meta::U32(0)));
        let tokenizer = open(&file).unwrap();
        let (_, adds_bos, expected) = gpt2.outcome(name);
        assert_eq!(tokenizer.adds_bos(), adds_bos, "{name}");
        let own = OWN.iter().find(|(names, _)| names.contains(&&**name));
        for (text, ids) in texts.iter().zip(expected) {
            let found = tokenizer.encode(text).unwrap();
            if own.is_some_and(|(_, characters)| text.contains(*characters)) {
                assert_ne!(found, *ids, "{name}, {text:?}");
            } else {
                assert_eq!(found, *ids, "{name}, {text:?}");
            }
        }
    }
}

#[test]
fn decomposed_characters_are_composed_for_models_trained_so() {
    let Reference { texts, gpt2, .. } = reference();
    let decomposed = texts.iter().position(|text| text.contains('\u{301}'));
    let decomposed = decomposed.unwrap();
    for name in OWN[0].0 {
        let mut file = file("gpt2", &gpt2.keys);
        file.set("tokenizer.ggml.pre", Some(Meta::Text((*name).into())));
        let found = open(&file).unwrap().encode(&texts[decomposed]).unwrap();
        let (_, _, expected) = gpt2.outcome(name);
        assert_eq!(found, expected[decomposed + 1], "{name}");
    }
}

#[test]
fn scored_pieces_are_joined_as_llama_cpp_does() {
    let Reference { texts, llama, .. } = reference();
    assert_eq!(llama.results.len(), 4);
    let mut digests = Vec::new();
    for name in llama.results.keys() {
        let (more, adds_bos, expected) = llama.outcome(name);
        let mut file = file("llama", &llama.keys);
        for (key, value) in more {
            match value {
                Value::String(text) => file.set(key, Some(Meta::Text(text.clone()))),
                other => file.set(
                    &format!("tokenizer.ggml.{key}"),
                    Some(Meta::Flag(other.as_bool().unwrap())),
                ),
            }
        }
        let tokenizer = open(&file).unwrap();
        assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
        assert_eq!(tokenizer.adds_bos(), adds_bos, "{name}");
        for (text, ids) in texts.iter().zip(expected) {
            // Three spaces are an added token here, which another would take along.
            if name == "strips" && text.contains("   ") {
                continue;
            }
            let found = tokenizer.encode(text).unwrap();
            assert_eq!(found, *ids, "{name}, {text:?}");
        }
        digests.push(tokenizer.digest().to_owned());
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 4, "each case is another tokenizer");
}

/// What sentencepiece makes of texts, but for runs of spaces, which are an added token here.
#[test]
fn scored_pieces_are_joined_as_sentencepiece_does() {
    #[derive(Deserialize)]
    struct Case {
        text: String,
        ids: Vec<u32>,
    }
    let bytes = include_str!("../data/sentencepiece/expected.json");
    let mut expected: BTreeMap<String, Vec<Case>> = serde_json::from_str(bytes).unwrap();
    let tokenizer = open(&scored_file()).unwrap();
    for Case { text, ids } in expected.remove("llama").unwrap() {
        if !text.contains("   ") {
            assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{text:?}");
        }
    }
}

#[test]
fn scores_that_do_not_order_the_pieces_are_refused() {
    let llama = reference().llama.keys;
    let count = llama.tokens.len();
    let with = |key: &str, value: Option<Meta>| {
        let mut file = file("llama", &llama);
        file.set(&format!("tokenizer.ggml.{key}"), value);
        open(&file).unwrap_err()
    };
    let mut long = llama.tokens.clone();
    long[300] = "x".repeat(1025);
    let cases = [
        (
            with("scores", Some(Meta::F32s(vec![-1000.0; count]))),
            ErrorCode::TokenizerUnusable,
            "the same score",
        ),
        (
            with("scores", Some(Meta::F32s(vec![f32::NAN; count]))),
            ErrorCode::CheckpointUnreadable,
            "no score",
        ),
        (
            with("tokens", Some(Meta::Texts(long))),
            ErrorCode::CheckpointUnreadable,
            "piece 300 has 1025 bytes",
        ),
        (
            with("scores", Some(Meta::F32s(vec![0.0; 3]))),
            ErrorCode::CheckpointUnreadable,
            "has 3 numbers",
        ),
        (
            with("token_type", None),
            ErrorCode::CheckpointUnreadable,
            "tokenizer.ggml.token_type",
        ),
        (
            with("scores", None),
            ErrorCode::CheckpointUnreadable,
            "`tokenizer.ggml.scores` is missing",
        ),
    ];
    for (error, code, part) in cases {
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_file_that_does_not_name_its_pre_tokenizer_has_a_warning() {
    let warnings = |pre: Option<&str>| {
        let mut file = GgufFile::of_fixture("llama_gqa");
        let pre = pre.map(|pre| Meta::Text(pre.into()));
        file.set("tokenizer.ggml.pre", pre);
        let (_dir, path) = file.write();
        Checkpoint::open(&path).unwrap().warnings().to_vec()
    };
    for pre in [None, Some(""), Some("default")] {
        let found = warnings(pre);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("(tokenizer.ggml.pre)"), "{found:?}");
        assert!(found[0].contains("model.gguf"), "{found:?}");
    }
    assert_eq!(warnings(Some("gpt-2")), [""; 0]);
    let (_dir, path) = scored_file().write();
    let scored = Checkpoint::open(&path).unwrap();
    assert_eq!(scored.warnings(), [""; 0], "scored pieces have none");
}
