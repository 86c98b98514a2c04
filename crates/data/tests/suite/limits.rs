//! Parts of a dataset.

use assay_api::{DatasetRef, Sample};
use assay_data::{DataError, Place};

use crate::bench::{Bench, jsonl};

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
        let source = DatasetRef {
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
    let source = DatasetRef {
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
    let by_tokens = DatasetRef {
        limit_tokens: Some(1),
        ..source.clone()
    };
    let by_documents = DatasetRef {
        limit_documents: Some(1),
        ..source.clone()
    };
    assert_eq!(bench.tokenize(&by_tokens).unwrap().documents(), 1);
    assert_eq!(bench.tokenize(&by_documents).unwrap().documents(), 1);
    let error = bench.tokenize(&source).unwrap_err();
    assert!(
        matches!(
            &error,
            DataError::InvalidRecord {
                place: Place::Line(_, 2),
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_sample_takes_the_documented_documents_in_their_order() {
    let bench = Bench::new();
    let texts: Vec<String> = (0..20).map(|i| format!("document {i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Blank lines are no documents, and what is not taken is not looked at.
    let lines = jsonl(&texts).replace("document 5\"}\n", "document 5\"}\n\n  \n");
    let lines = lines.replacen("{\"text\":\"document 1\"}", "not JSON", 1);
    let source = bench.write("many.jsonl", lines);
    let sampled = |documents, seed| DatasetRef {
        sample: Some(Sample { documents, seed }),
        ..source.clone()
    };
    let store = bench.tokenize(&sampled(5, 0)).unwrap();
    for (document, index) in (0..).zip([0, 9, 10, 14, 19]) {
        let text = format!("document {index}");
        assert_eq!(store.ids(document), bench.encode(&text), "{text}");
    }
    assert_eq!(store.documents(), 5);
    let other = bench.tokenize(&sampled(5, 7)).unwrap();
    assert_ne!(other.tokens_digest(), store.tokens_digest());
    assert_ne!(other.key(), store.key());
    // A limit of tokens is one of the sample's tokens.
    let limited = DatasetRef {
        limit_tokens: Some(store.facts(0).tokens + 1),
        ..sampled(5, 0)
    };
    let limited = bench.tokenize(&limited).unwrap();
    assert_eq!(limited.documents(), 1);
    assert_eq!(limited.ids(0), store.ids(0));
    let error = bench.tokenize(&sampled(20, 0)).unwrap_err();
    assert!(matches!(error, DataError::InvalidRecord { .. }), "{error}");
}
