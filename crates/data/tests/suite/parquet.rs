//! Parquet files whose columns are not what is asked for.

use assay_api::ErrorCode;
use assay_data::DataError;
use serde_json::json;

use crate::bench::{Bench, dataset};

#[test]
fn a_missing_column_is_named_with_those_there_are() {
    let bench = Bench::new();
    bench.copy("documents.parquet");
    for options in [
        json!({"field": "texts"}),
        json!({"group_by": "texts"}),
        json!({"format": "pairs", "response_field": "texts"}),
    ] {
        let mut options = options;
        options["path"] = json!("documents.parquet");
        let error = bench.tokenize(&dataset(options)).unwrap_err();
        assert!(
            matches!(error, DataError::ColumnMissing { .. }),
            "{error:?}"
        );
        assert_eq!(error.code(), ErrorCode::DatasetInvalid);
        let text = error.to_string();
        assert!(
            text.contains("`texts`") && text.contains("`text`, `large`"),
            "{text}"
        );
    }
}

#[test]
fn a_column_of_another_type_is_refused_by_name() {
    let bench = Bench::new();
    bench.copy("documents.parquet");
    for (field, found) in [
        ("n", "INT32"),
        ("real", "DOUBLE"),
        ("list", "lists"),
        ("day", "INT32"),
    ] {
        let column = dataset(json!({"path": "documents.parquet", "field": field}));
        let error = bench.tokenize(&column).unwrap_err();
        assert!(
            matches!(error, DataError::ColumnNotStrings { .. }),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains(found) && text.contains("`text`"), "{text}");
    }
}

#[test]
fn a_null_and_bytes_that_are_no_text_are_placed() {
    let bench = Bench::new();
    bench.copy("documents.parquet");
    for (field, expected) in [
        (
            "gaps",
            "documents.parquet, row 3: field `gaps` is null, not a string",
        ),
        (
            "latin1",
            "documents.parquet, row 2: a string of it is not UTF-8",
        ),
    ] {
        let column = dataset(json!({"path": "documents.parquet", "field": field}));
        let error = bench.tokenize(&column).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(error.code(), ErrorCode::DatasetInvalid);
        // What a limit or a sample leaves out is not looked at.
        let one = json!({"path": "documents.parquet", "field": field, "limit_documents": 1});
        assert_eq!(bench.tokenize(&dataset(one)).unwrap().documents(), 1);
    }
    let list = dataset(json!({"path": "documents.parquet", "group_by": "list"}));
    let error = bench.tokenize(&list).unwrap_err().to_string();
    assert!(error.contains("row 1: field `list` is an array"), "{error}");
}

#[test]
fn a_sample_of_rows_is_that_of_lines() {
    let bench = Bench::new();
    bench.copy("documents.jsonl");
    bench.copy("documents.parquet");
    let sampled = |path: &str, seed: u64| {
        let sample = json!({"documents": 2, "seed": seed});
        let store = bench
            .tokenize(&dataset(json!({"path": path, "sample": sample})))
            .unwrap();
        store.tokens_digest().to_owned()
    };
    for seed in 1..6 {
        assert_eq!(
            sampled("documents.jsonl", seed),
            sampled("documents.parquet", seed)
        );
    }
}
