//! Datasets of every shape through the tokenizer of a fixture.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use assay_api::{DatasetRef, ErrorCode};
use assay_checkpoint::{Checkpoint, DigestCache, TextTokenizer};
use assay_data::{DataError, DatasetSource, LineFault, TokenStore, tokenize};
use assay_scoring::DocumentFacts;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// A dataset file and a cache of its own.
struct Bench {
    dir: TempDir,
    tokenizer: TextTokenizer,
}

impl Bench {
    fn new() -> Self {
        let tokenizer = Checkpoint::open(&fixture()).unwrap().tokenizer().unwrap();
        Self {
            dir: tempfile::tempdir().unwrap(),
            tokenizer,
        }
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> DatasetSource {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        DatasetSource {
            path,
            format: DatasetRef::at(name).format(),
            field: "text".to_owned(),
            limit_documents: None,
            limit_tokens: None,
        }
    }

    fn tokenize(&self, source: &DatasetSource) -> Result<TokenStore, DataError> {
        let digests = DigestCache::new(&self.dir.path().join("digests"));
        tokenize(source, &self.tokenizer, &self.cache(), &digests)
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn cached(&self) -> Vec<PathBuf> {
        fs::read_dir(self.cache())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }

    fn error(&self, name: &str, bytes: impl AsRef<[u8]>) -> DataError {
        self.tokenize(&self.write(name, bytes)).expect_err(name)
    }
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/llama_gqa")
}

/// (text, ids without special tokens) from the fixture's reference values.
fn expected() -> Vec<(String, Vec<u32>)> {
    let json = fs::read(fixture().join("expected.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    ["short", "long", "mixed"]
        .iter()
        .map(|case| {
            let case = &json["tokens"][case];
            let text = case["text"].as_str().unwrap().to_owned();
            (
                text,
                serde_json::from_value(case["without_special"].clone()).unwrap(),
            )
        })
        .collect()
}

fn jsonl(texts: &[&str]) -> String {
    let line = |text: &&str| format!("{}\n", json!({ "text": text }));
    texts.iter().map(line).collect::<Vec<_>>().concat()
}

fn content(store: &TokenStore) -> Vec<(Vec<u32>, DocumentFacts)> {
    (0..store.documents())
        .map(|d| (store.ids(d).to_vec(), store.facts(d)))
        .collect()
}

#[test]
fn ids_are_the_reference_ones() {
    let bench = Bench::new();
    let expected = expected();
    let texts: Vec<&str> = expected.iter().map(|(text, _)| text.as_str()).collect();
    let lines = jsonl(&texts);
    let store = bench
        .tokenize(&bench.write("reference.jsonl", &lines))
        .unwrap();

    assert_eq!(store.documents(), 3);
    let mut hash = Sha256::new();
    for (document, (text, ids)) in (0..).zip(&expected) {
        assert_eq!(store.ids(document), ids);
        let facts = store.facts(document);
        assert_eq!(
            (facts.tokens, facts.bytes),
            (ids.len() as u64, text.len() as u64)
        );
        hash.update((ids.len() as u64).to_le_bytes());
        for id in ids {
            hash.update(id.to_le_bytes());
        }
    }
    // `rolling_bos` of the fixture's reference values.
    assert_eq!(
        store.facts(1),
        DocumentFacts {
            tokens: 713,
            bytes: 1025,
            words: 188
        }
    );
    assert_eq!(store.tokens_digest(), digest(hash));
    assert_eq!(store.data_digest(), digest(Sha256::new_with_prefix(lines)));
}

fn digest(hash: Sha256) -> String {
    let hex: Vec<String> = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{}", hex.concat())
}

#[test]
fn a_text_file_is_one_document() {
    let bench = Bench::new();
    let text = "two\r\n\r\nlines\u{a0}here \n";
    let store = bench.tokenize(&bench.write("prose.txt", text)).unwrap();
    assert_eq!(store.documents(), 1);
    assert_eq!(store.ids(0), bench.tokenizer.encode(text).unwrap());
    assert_eq!(
        (store.facts(0).bytes, store.facts(0).words),
        (text.len() as u64, 4)
    );
}

#[test]
fn blank_lines_are_passed_over_and_empty_documents_kept() {
    let bench = Bench::new();
    let lines = "\n{\"text\": \"one\"}\r\n  \t\n{\"n\": 1, \"text\": \"\"}\n\n{\"text\": \"last\"}";
    let store = bench.tokenize(&bench.write("gaps.jsonl", lines)).unwrap();
    let facts: Vec<_> = (0..store.documents()).map(|d| store.facts(d)).collect();
    assert_eq!(
        facts.iter().map(|f| (f.bytes, f.words)).collect::<Vec<_>>(),
        [(3, 1), (0, 1), (4, 1)]
    );
    assert_eq!((facts[1].tokens, store.ids(1)), (0, &[][..]));
    assert_eq!(store.ids(2), bench.tokenizer.encode("last").unwrap());
}

#[test]
fn another_field_is_another_dataset() {
    let bench = Bench::new();
    let text = bench.write(
        "both.jsonl",
        r#"{"text": "a question", "answer": "an answer"}"#,
    );
    let answer = DatasetSource {
        field: "answer".to_owned(),
        ..text.clone()
    };
    assert_eq!(
        bench.tokenize(&text).unwrap().ids(0),
        bench.tokenizer.encode("a question").unwrap()
    );
    assert_eq!(
        bench.tokenize(&answer).unwrap().ids(0),
        bench.tokenizer.encode("an answer").unwrap()
    );
    assert_eq!(bench.cached().len(), 2);
}

#[test]
fn limits_take_whole_documents() {
    let bench = Bench::new();
    let texts = [
        "one two three",
        "",
        "four five",
        "six",
        "seven eight nine ten",
    ];
    let tokens: Vec<u64> = texts
        .iter()
        .map(|t| bench.tokenizer.encode(t).unwrap().len() as u64)
        .collect();
    let source = bench.write("some.jsonl", jsonl(&texts));
    let to_third = tokens[..3].iter().sum::<u64>();
    for (limit_documents, limit_tokens, documents) in [
        (None, None, 5),
        (Some(1), None, 1),
        (Some(4), None, 4),
        (Some(u64::MAX), None, 5),
        // The first document is taken however long it is.
        (None, Some(1), 1),
        // A limit that is reached takes no more, not even the empty second document.
        (None, Some(tokens[0]), 1),
        (None, Some(tokens[0] + 1), 2),
        (None, Some(to_third - 1), 2),
        (None, Some(to_third), 3),
        (None, Some(to_third + 1), 3),
        (None, Some(u64::MAX), 5),
        (Some(2), Some(u64::MAX), 2),
    ] {
        let source = DatasetSource {
            limit_documents,
            limit_tokens,
            ..source.clone()
        };
        let store = bench.tokenize(&source).unwrap();
        assert_eq!(
            store.documents(),
            documents,
            "{limit_documents:?} {limit_tokens:?}"
        );
    }
}

#[test]
fn a_limit_is_not_used_up_by_documents_without_tokens() {
    let bench = Bench::new();
    let source = DatasetSource {
        limit_tokens: Some(1),
        ..bench.write("late.jsonl", jsonl(&["", "", "several tokens", "more"]))
    };
    let store = bench.tokenize(&source).unwrap();
    assert_eq!(store.documents(), 3);
    assert!(store.facts(2).tokens > 1);
}

#[test]
fn a_fault_behind_the_limit_is_not_looked_at() {
    let bench = Bench::new();
    let source = bench.write("tail.jsonl", "{\"text\": \"good\"}\nbad\n");
    let by_tokens = DatasetSource {
        limit_tokens: Some(1),
        ..source.clone()
    };
    let by_documents = DatasetSource {
        limit_documents: Some(1),
        ..source.clone()
    };
    assert_eq!(bench.tokenize(&by_tokens).unwrap().documents(), 1);
    assert_eq!(bench.tokenize(&by_documents).unwrap().documents(), 1);
    let error = bench.tokenize(&source).unwrap_err();
    assert!(
        matches!(error, DataError::InvalidLine { line: 2, .. }),
        "{error}"
    );
}

#[test]
fn many_documents_come_out_as_one_by_one() {
    let bench = Bench::new();
    // More than one batch, with lengths from nothing to a few kilobytes.
    let texts: Vec<String> = (0..20_000_usize)
        .map(|i| format!("{i} ").repeat(i % 61))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let store = bench
        .tokenize(&bench.write("many.jsonl", jsonl(&texts)))
        .unwrap();
    assert_eq!(store.documents(), 20_000);
    for (document, text) in (0..).zip(&texts).step_by(97) {
        assert_eq!(store.ids(document), bench.tokenizer.encode(text).unwrap());
        assert_eq!(store.facts(document).bytes, text.len() as u64);
    }
}

#[test]
fn a_cache_hit_equals_a_miss() {
    let bench = Bench::new();
    let source = bench.write("twice.jsonl", jsonl(&["once", "and again"]));
    let miss = bench.tokenize(&source).unwrap();
    let cached = bench.cached();
    let inode = fs::metadata(&cached[0]).unwrap().ino();
    let hit = bench.tokenize(&source).unwrap();
    assert_eq!(content(&hit), content(&miss));
    assert_eq!(hit.tokens_digest(), miss.tokens_digest());
    assert_eq!(hit.data_digest(), miss.data_digest());
    assert_eq!(bench.cached(), cached);
    assert_eq!(
        fs::metadata(&cached[0]).unwrap().ino(),
        inode,
        "built again"
    );

    let changed = bench
        .tokenize(&bench.write("twice.jsonl", jsonl(&["once", "and more"])))
        .unwrap();
    assert_ne!(changed.tokens_digest(), miss.tokens_digest());
    assert_ne!(changed.data_digest(), miss.data_digest());
}

#[test]
fn a_damaged_cache_is_built_again() {
    let bench = Bench::new();
    let source = bench.write("damage.jsonl", jsonl(&["some text", "and some more of it"]));
    let whole = content(&bench.tokenize(&source).unwrap());
    let path = bench.cached().remove(0);
    let bytes = fs::read(&path).unwrap();

    let cut = (0..bytes.len()).map(|length| bytes[..length].to_vec());
    let flipped = (0..bytes.len()).map(|at| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        bytes
    });
    let grown = std::iter::once([&bytes[..], &[0]].concat());
    for damaged in cut.chain(flipped).chain(grown) {
        fs::write(&path, &damaged).unwrap();
        assert_eq!(content(&bench.tokenize(&source).unwrap()), whole);
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn builders_do_not_disturb_each_other() {
    let bench = Bench::new();
    let texts: Vec<String> = (0..500).map(|i| format!("document {i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let source = bench.write("shared.jsonl", jsonl(&texts));
    let contents: Vec<_> = std::thread::scope(|scope| {
        let builders: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| content(&bench.tokenize(&source).unwrap())))
            .collect();
        builders
            .into_iter()
            .map(|builder| builder.join().unwrap())
            .collect()
    });
    assert!(contents.iter().all(|content| *content == contents[0]));
    assert_eq!(bench.cached().len(), 1, "files are left over");
}

#[test]
fn a_bad_line_is_named() {
    let bench = Bench::new();
    let fields = "`body`, `id`".to_owned();
    let text = || "text".to_owned();
    let not_json = |column, detail: &str| LineFault::NotJson {
        column,
        detail: detail.to_owned(),
    };
    let cases: Vec<(&[u8], LineFault)> = vec![
        (b"{\"text\": \"\xff\"}", LineFault::NotUtf8 { offset: 10 }),
        (b"plain text", not_json(1, "expected value")),
        (
            "\u{feff}{\"text\": \"a\"}".as_bytes(),
            not_json(1, "a byte order mark; save the file without one"),
        ),
        (
            b"{\"text\": \"a\"",
            not_json(12, "EOF while parsing an object"),
        ),
        (b"{\"text\": \"a\"} {}", not_json(15, "trailing characters")),
        (
            b"{\"text\": \"\\ud800\"}",
            not_json(17, "unexpected end of hex escape"),
        ),
        (b"[\"text\"]", LineFault::NotAnObject { found: "an array" }),
        (b"\"text\"", LineFault::NotAnObject { found: "a string" }),
        (b"null", LineFault::NotAnObject { found: "null" }),
        (
            b"{\"body\": \"x\", \"id\": 1}",
            LineFault::FieldMissing {
                field: text(),
                fields,
            },
        ),
        (
            b"{}",
            LineFault::FieldMissing {
                field: text(),
                fields: "no fields".to_owned(),
            },
        ),
        (
            b"{\"text\": [\"a\"]}",
            LineFault::FieldNotAString {
                field: text(),
                found: "an array",
                fields: "`text`".to_owned(),
            },
        ),
    ];
    for (bad, expected) in cases {
        let lines = [
            b"{\"text\": \"good\"}\n\n",
            bad,
            b"\n{\"text\": \"good\"}\n",
        ]
        .concat();
        let error = bench.error("bad.jsonl", lines);
        let sentence = error.to_string();
        assert!(sentence.starts_with("bad.jsonl, line 3: "), "{sentence}");
        assert_eq!(error.code(), ErrorCode::DatasetInvalid);
        let DataError::InvalidLine { line: 3, fault, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(fault, expected);
    }
    assert!(bench.cached().is_empty(), "a failed build leaves a file");
}

#[test]
fn deep_nesting_is_an_error_and_many_fields_are_cut() {
    let bench = Bench::new();
    let error = bench.error("deep.jsonl", "[".repeat(100_000));
    assert!(error.to_string().contains("recursion limit"), "{error}");
    let object: serde_json::Map<_, _> = (0..1000)
        .map(|i| (format!("f{i:03}"), Value::Null))
        .collect();
    let error = bench.error("wide.jsonl", Value::from(object).to_string());
    assert!(error.to_string().contains("`f019` and 980 more"), "{error}");
}

#[test]
fn text_that_is_not_utf8_is_refused_with_the_offset() {
    let bench = Bench::new();
    let error = bench.error("latin1.txt", b"caf\xe9 noir");
    assert!(
        matches!(error, DataError::NotUtf8 { offset: 3, .. }),
        "{error:?}"
    );
    assert_eq!(error.code(), ErrorCode::DatasetInvalid);
}

#[test]
fn nothing_to_score_is_an_error() {
    let bench = Bench::new();
    for (name, bytes) in [("no.jsonl", ""), ("blank.jsonl", "\n \n\n")] {
        let error = bench.error(name, bytes);
        assert!(matches!(error, DataError::Empty { .. }), "{error:?}");
        assert_eq!(error.code(), ErrorCode::DatasetEmpty);
    }
    for (name, bytes) in [("no.txt", String::new()), ("void.jsonl", jsonl(&["", ""]))] {
        let error = bench.error(name, bytes);
        assert!(
            matches!(error, DataError::NothingToScore { .. }),
            "{error:?}"
        );
        assert_eq!(error.code(), ErrorCode::DatasetEmpty);
    }
}

#[test]
fn what_is_no_file_is_unreadable() {
    let bench = Bench::new();
    let source = bench.write("there.txt", "text");
    let socket = bench.dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for path in [
        bench.dir.path().join("missing.jsonl"),
        bench.dir.path().to_owned(),
        socket,
    ] {
        let error = bench
            .tokenize(&DatasetSource {
                path,
                ..source.clone()
            })
            .unwrap_err();
        assert!(matches!(error, DataError::Unreadable { .. }), "{error:?}");
        assert_eq!(error.code(), ErrorCode::DatasetUnreadable);
        let outside = bench
            .dir
            .path()
            .parent()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        assert!(!error.to_string().contains(&outside), "{error}");
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let source = bench.write("there.txt", "text");
    fs::write(bench.cache(), "a file where the directory should be").unwrap();
    let error = bench.tokenize(&source).unwrap_err();
    assert!(matches!(error, DataError::Cache(_)), "{error:?}");
    assert_eq!(error.code(), ErrorCode::Internal);
}
