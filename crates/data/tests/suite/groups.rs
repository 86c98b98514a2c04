//! Documents in groups.

use assay_api::ErrorCode;
use assay_data::{DataError, TokenStore};
use serde_json::json;

use crate::bench::{Bench, dataset};

fn groups(store: &TokenStore) -> Vec<&str> {
    (0..store.documents())
        .map(|document| &*store.group_names()[store.group(document).unwrap() as usize])
        .collect()
}

#[test]
fn groups_are_the_values_of_a_field() {
    let bench = Bench::new();
    let lines = bench.copy("documents.jsonl");
    bench.copy("documents.parquet");
    let plain = bench.tokenize(&lines).unwrap();
    assert_eq!((plain.group_names(), plain.group(0)), (&[][..], None));
    for path in ["documents.jsonl", "documents.parquet"] {
        let by = |field: &str| {
            let dataset = dataset(json!({"path": path, "group_by": field}));
            let store = bench.tokenize(&dataset).unwrap();
            assert_eq!(store.tokens_digest(), plain.tokens_digest());
            assert_ne!(store.key(), plain.key());
            store
        };
        let by_language = by("lang");
        assert_eq!(by_language.group_names(), ["de", "en"]);
        assert_eq!(groups(&by_language), ["en", "en", "de", "en", "de"]);
        let by_number = by("n");
        assert_eq!(groups(&by_number), ["1", "2", "1", "2", "3"]);
        assert_eq!(by("prompt").group_names().len(), 5);
    }
    let by_day = dataset(json!({"path": "documents.parquet", "group_by": "day"}));
    assert_eq!(bench.tokenize(&by_day).unwrap().group_names().len(), 1);
}

#[test]
fn values_of_every_kind_that_can_be_a_name_are() {
    let bench = Bench::new();
    let documents = [
        json!("x"),
        json!(""),
        json!(1),
        json!(1.5),
        json!(true),
        json!("1"),
    ]
    .map(|group| json!({"text": "a", "g": group}));
    let store = bench
        .tokenize(&dataset(json!({"documents": documents, "group_by": "g"})))
        .unwrap();
    assert_eq!(groups(&store), ["x", "", "1", "1.5", "true", "1"]);
    assert_eq!(store.group_names(), ["", "1", "1.5", "true", "x"]);
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    let bench = Bench::new();
    for (group, expected) in [
        (
            json!({"text": "a"}),
            "no field `g`; the object has `text`; name the field in `group_by`",
        ),
        (
            json!({"text": "a", "g": null}),
            "field `g` is null, not a string, a number or a boolean",
        ),
        (json!({"text": "a", "g": ["x"]}), "field `g` is an array"),
        (
            json!({"text": "a", "g": "x".repeat(257)}),
            "at most 256 bytes",
        ),
        (json!({"text": "a", "g": "\0"}), "no NUL"),
    ] {
        let lines = format!("{}\n{group}\n", json!({"text": "a", "g": "x"}));
        bench.write("g.jsonl", lines);
        let error = bench
            .tokenize(&dataset(json!({"path": "g.jsonl", "group_by": "g"})))
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("g.jsonl, line 2: ") && text.contains(expected),
            "{text}"
        );
        assert_eq!(error.code(), ErrorCode::DatasetInvalid);
    }
    let inline = dataset(json!({"documents": ["a"], "group_by": "g"}));
    assert!(bench.tokenize(&inline).is_err());
}

#[test]
fn there_are_at_most_a_thousand_groups() {
    let bench = Bench::new();
    let lines = |groups: usize| -> String {
        let line = |group| format!("{}\n", json!({"text": "a", "g": group}));
        (0..groups).map(line).collect::<Vec<_>>().concat()
    };
    bench.write("few.jsonl", lines(1000));
    bench.write("many.jsonl", lines(1001));
    let grouped = |path: &str| dataset(json!({"path": path, "group_by": "g"}));
    let store = bench.tokenize(&grouped("few.jsonl")).unwrap();
    assert_eq!(store.group_names().len(), 1000);
    assert_eq!(
        bench.inspect(&grouped("few.jsonl")).unwrap().groups.len(),
        1000
    );
    let error = bench.tokenize(&grouped("many.jsonl")).unwrap_err();
    assert!(
        matches!(error, DataError::TooManyGroups { limit: 1000, .. }),
        "{error:?}"
    );
    assert!(bench.inspect(&grouped("many.jsonl")).is_err());
}
