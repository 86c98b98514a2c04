//! Datasets that are refused, and how they say so.

use assay_api::ErrorCode;
use assay_data::{DataError, Place, RecordFault};
use serde_json::{Value, json};

use crate::bench::{Bench, dataset, jsonl};

#[test]
fn a_bad_line_is_named() {
    let bench = Bench::new();
    let fields = "`body`, `id`".to_owned();
    let text = || "text".to_owned();
    let not_json = |column, detail: &str| RecordFault::NotJson {
        column,
        detail: detail.to_owned(),
    };
    let cases: Vec<(&[u8], RecordFault)> = vec![
        (b"{\"text\": \"\xff\"}", RecordFault::NotUtf8 { offset: 10 }),
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
        (
            b"[\"text\"]",
            RecordFault::NotAnObject { found: "an array" },
        ),
        (b"\"text\"", RecordFault::NotAnObject { found: "a string" }),
        (b"null", RecordFault::NotAnObject { found: "null" }),
        (
            b"{\"body\": \"x\", \"id\": 1}",
            RecordFault::FieldMissing {
                field: text(),
                option: "field",
                fields,
            },
        ),
        (
            b"{}",
            RecordFault::FieldMissing {
                field: text(),
                option: "field",
                fields: "no fields".to_owned(),
            },
        ),
        (
            b"{\"text\": [\"a\"]}",
            RecordFault::FieldOfWrongKind {
                field: text(),
                option: "field",
                found: "an array",
                expected: "a string",
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
        let DataError::InvalidRecord { place, fault } = error else {
            panic!("{error:?}")
        };
        assert_eq!(place, Place::Line("bad.jsonl".to_owned(), 3));
        assert_eq!(*fault, expected);
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
fn a_fault_deep_in_a_large_file_is_placed() {
    let bench = Bench::new();
    let line = format!("{}\n", json!({"text": "", "filler": "x".repeat(100)}));
    let mut lines = line.repeat(420_000).into_bytes();
    let length = lines.len();
    assert!(length > 50_000_000);
    let whole = dataset(json!({"path": "large.jsonl", "format": "text"}));
    let at = 300_000 * line.len() + 20;
    lines[at] = 0xff;
    let error = bench.error("large.jsonl", &lines).to_string();
    assert!(
        error.starts_with("large.jsonl, line 300001: byte 20 of the line is not UTF-8"),
        "{error}"
    );
    let error = bench.tokenize(&whole).unwrap_err();
    assert!(
        matches!(error, DataError::NotUtf8 { offset, .. } if offset == at),
        "{error}"
    );
}

#[test]
fn what_is_gone_or_no_file_anymore_is_unreadable() {
    let bench = Bench::new();
    let source = bench.source(&bench.write("there.txt", "text"));
    let read = || {
        let reading = bench.reading();
        assay_data::tokenize(&source, &reading, &bench.cache(), &bench.digests())
    };
    std::fs::remove_file(bench.path("there.txt")).unwrap();
    let missing = read().unwrap_err();
    let _listener = std::os::unix::net::UnixListener::bind(bench.path("there.txt")).unwrap();
    for error in [missing, read().unwrap_err()] {
        assert!(matches!(error, DataError::Unreadable { .. }), "{error:?}");
        assert_eq!(error.code(), ErrorCode::DatasetUnreadable);
        let outside = bench.dir.path().to_string_lossy().into_owned();
        assert!(!error.to_string().contains(&outside), "{error}");
    }
}

#[test]
fn inline_documents_are_placed_as_in_the_request() {
    let bench = Bench::new();
    for (documents, start) in [
        (json!(["a", 1]), "documents[1]: a number where"),
        (
            json!([{"text": "a"}, {"txt": "b"}]),
            "documents[1]: no field `text`; the object has `txt`",
        ),
        (json!([null]), "documents[0]: null where"),
    ] {
        let error = bench
            .tokenize(&dataset(json!({"documents": documents})))
            .unwrap_err();
        assert!(error.to_string().starts_with(start), "{error}");
        assert_eq!(error.code(), ErrorCode::DatasetInvalid);
    }
    let chat = dataset(json!({"documents": ["a"], "format": "pairs"}));
    let error = bench.tokenize(&chat).unwrap_err().to_string();
    assert!(error.starts_with("documents[0]: a string where"), "{error}");
}
