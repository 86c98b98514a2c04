//! Parts of a dataset.

use assay_data::{DataError, DatasetSource};

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
