//! Datasets that are refused, and how they say so.

use assay_api::ErrorCode;
use assay_data::{DataError, DatasetSource, LineFault};
use serde_json::Value;

use crate::bench::{Bench, jsonl};

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
