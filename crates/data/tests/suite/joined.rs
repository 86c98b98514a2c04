//! Documents as one text.

use assay_api::DatasetRef;
use assay_data::{DataError, Reading};
use serde_json::json;

use crate::bench::{Bench, dataset, expected, jsonl};

#[test]
fn joined_documents_are_tokenized_as_one_text() {
    let bench = Bench::new();
    let texts: Vec<String> = expected().into_iter().map(|(text, _)| text).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).chain([""]).collect();
    let source = bench.write("a.jsonl", jsonl(&texts));
    for join in ["\n\n", "", "—", " and so on, for quite a while "] {
        let store = bench.join(&source, join);
        assert_eq!(store.stream(), bench.encode(&texts.join(join)), "{join:?}");
        assert_eq!(store.documents(), 4);
        let mut start = 0;
        for (document, text) in (0..).zip(&texts) {
            assert_eq!(store.facts(document).bytes, text.len() as u64);
            assert_eq!(store.start(document), start);
            for token in start..start + store.facts(document).tokens {
                assert_eq!(store.owner(token), document);
                let bytes = store.offsets(token).unwrap();
                assert!(bytes.start <= bytes.end && bytes.end <= text.len() as u64);
            }
            start += store.facts(document).tokens;
        }
        // Every token's text is where it says, as far as it lies inside of its document.
        let first = store.offsets(0).unwrap();
        assert_eq!(first.start, 0);
        assert!(store.warnings().is_empty());
    }
}

#[test]
fn a_joined_store_is_another_one() {
    let bench = Bench::new();
    let source = bench.write("a.jsonl", jsonl(&["one two", "three"]));
    let alone = bench.tokenize(&source).unwrap();
    let by_line = bench.join(&source, "\n");
    let by_space = bench.join(&source, " ");
    assert_ne!(alone.key(), by_line.key());
    assert_ne!(by_line.key(), by_space.key());
    assert_ne!(alone.tokens_digest(), by_line.tokens_digest());
    let single = bench.write("b.jsonl", jsonl(&["one two"]));
    let (joined, alone) = (bench.join(&single, "\n"), bench.tokenize(&single).unwrap());
    assert_eq!(joined.tokens_digest(), alone.tokens_digest());
}

#[test]
fn limits_of_joined_documents_count_each_alone() {
    let bench = Bench::new();
    let texts = ["one two three", "", "four five", "six"];
    let alone: Vec<u64> = texts.iter().map(|t| bench.encode(t).len() as u64).collect();
    let source = bench.write("a.jsonl", jsonl(&texts));
    for (limit_documents, limit_tokens, documents) in [
        (Some(2), None, 2),
        (None, Some(1), 1),
        (None, Some(alone[0] + alone[2]), 3),
        (None, Some(alone[0] + alone[2] - 1), 2),
    ] {
        let limited = DatasetRef {
            limit_documents,
            limit_tokens,
            ..source.clone()
        };
        let store = bench.join(&limited, "\n");
        assert_eq!(store.documents(), documents);
        let text = texts[..usize::try_from(documents).unwrap()].join("\n");
        assert_eq!(store.stream(), bench.encode(&text));
    }
}

#[test]
fn what_cannot_be_joined_says_so() {
    let bench = Bench::new();
    bench.copy("documents.jsonl");
    let pairs = dataset(json!({"path": "documents.jsonl", "format": "pairs"}));
    let reading = Reading {
        join: Some(""),
        ..bench.reading()
    };
    let error = bench.read(&pairs, &reading).unwrap_err();
    assert!(
        matches!(error, DataError::MaskedAndJoined { .. }),
        "{error:?}"
    );
    for (name, text) in [
        ("no.jsonl", String::new()),
        ("void.jsonl", jsonl(&["", ""])),
    ] {
        let error = bench.read(&bench.write(name, text), &reading).unwrap_err();
        assert!(
            matches!(
                error,
                DataError::Empty { .. } | DataError::NothingToScore { .. }
            ),
            "{error:?}"
        );
    }
}
