//! Datasets counted.

use assay_api::{DatasetFormat, ErrorCode, FileSize, GroupSize, LengthUnit};
use assay_data::DataError;
use serde_json::json;

use crate::bench::{Bench, dataset, jsonl};

#[test]
fn an_inspection_counts_what_tokenizing_counts() {
    let bench = Bench::new();
    bench.copy("documents.jsonl");
    let whole = dataset(json!({"path": "documents.jsonl", "name": "docs", "group_by": "lang"}));
    let store = bench.tokenize(&whole).unwrap();
    let found = bench.inspect(&whole).unwrap();
    let facts: Vec<_> = (0..store.documents()).map(|d| store.facts(d)).collect();
    let tokens = facts.iter().map(|f| f.tokens).sum();
    assert_eq!((&*found.name, found.format), ("docs", DatasetFormat::Jsonl));
    assert_eq!(found.digest, store.data_digest());
    assert_eq!(found.documents, 5);
    assert_eq!(found.bytes, facts.iter().map(|f| f.bytes).sum::<u64>());
    assert_eq!(found.words, facts.iter().map(|f| f.words).sum::<u64>());
    assert_eq!(
        (found.tokens, found.counted_tokens),
        (Some(tokens), Some(tokens))
    );
    assert_eq!((found.empty_documents, found.duplicate_documents), (1, 0));
    assert_eq!(found.lengths.unit, LengthUnit::Tokens);
    assert_eq!(
        found.lengths.max,
        facts.iter().map(|f| f.tokens).max().unwrap()
    );
    let size = std::fs::metadata(bench.path("documents.jsonl"))
        .unwrap()
        .len();
    let file = FileSize {
        name: "documents.jsonl".to_owned(),
        bytes: size,
    };
    assert_eq!(found.files, [file]);
    let group = |name: &str, documents| GroupSize {
        name: name.to_owned(),
        documents,
    };
    assert_eq!(found.groups, [group("de", 2), group("en", 3)]);

    let pairs = dataset(json!({"path": "documents.jsonl", "format": "pairs"}));
    let store = bench.tokenize(&pairs).unwrap();
    let counted = (0..store.stream().len() as u64).filter(|t| store.is_counted(*t));
    let found = bench.inspect(&pairs).unwrap();
    assert_eq!(found.counted_tokens, Some(counted.count() as u64));
    assert!(found.counted_tokens < found.tokens);
    assert!(!bench.cache().join("x").exists());
}

#[test]
fn without_a_model_bytes_are_counted() {
    let bench = Bench::new();
    let texts = ["a", "bb", "bb", "", "", "ccc ccc", "a"];
    let source = bench.source(&bench.write("a.jsonl", jsonl(&texts)));
    let found = assay_data::inspect(&source, None, None, &bench.digests(), &|| false).unwrap();
    assert_eq!((found.tokens, found.counted_tokens), (None, None));
    assert_eq!((found.documents, found.bytes), (7, 13));
    assert_eq!((found.empty_documents, found.duplicate_documents), (2, 3));
    assert_eq!(found.lengths.unit, LengthUnit::Bytes);
    assert_eq!(
        (found.lengths.min, found.lengths.median, found.lengths.max),
        (0, 1, 7)
    );
    assert!(!bench.cache().exists(), "an inspection keeps nothing");
}

#[test]
fn nothing_to_score_is_counted_too() {
    let bench = Bench::new();
    let found = bench.inspect(&bench.write("no.jsonl", "\n\n")).unwrap();
    assert_eq!((found.documents, found.tokens), (0, Some(0)));
    assert!(found.lengths.histogram.is_empty());
    let found = bench
        .inspect(&bench.write("void.jsonl", jsonl(&[""])))
        .unwrap();
    assert_eq!((found.documents, found.lengths.max), (1, 0));
}

#[test]
fn limits_and_samples_apply() {
    let bench = Bench::new();
    bench.copy("documents.jsonl");
    for options in [
        json!({"limit_documents": 2}),
        json!({"limit_tokens": 20}),
        json!({"sample": {"documents": 3, "seed": 5}}),
    ] {
        let mut whole = options.clone();
        whole["path"] = json!("documents.jsonl");
        let whole = dataset(whole);
        let store = bench.tokenize(&whole).unwrap();
        let found = bench.inspect(&whole).unwrap();
        assert_eq!(found.documents, store.documents(), "{options}");
        assert_eq!(found.tokens, Some(store.stream().len() as u64), "{options}");
    }
    let limited = dataset(json!({"path": "documents.jsonl", "limit_tokens": 20}));
    let source = bench.source(&limited);
    let error = assay_data::inspect(&source, None, None, &bench.digests(), &|| false).unwrap_err();
    assert!(matches!(error, DataError::NoTokenizer), "{error:?}");
    assert_eq!(error.code(), ErrorCode::InvalidRequest);
}

#[test]
fn an_inspection_stops_when_nobody_waits() {
    let bench = Bench::new();
    let source = bench.source(&bench.write("a.jsonl", jsonl(&["a"])));
    let error = assay_data::inspect(&source, None, None, &bench.digests(), &|| true).unwrap_err();
    assert!(matches!(error, DataError::Cancelled), "{error:?}");
}
