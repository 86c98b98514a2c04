//! Datasets of requests that are refused before anything is read.

use std::os::unix::fs::symlink;

use assay_api::{DatasetFormat, DatasetRef, ErrorCode};
use assay_data::{Source, SourceError};
use serde_json::json;

use crate::bench::{Bench, dataset, jsonl};

#[test]
fn files_of_several_formats_are_refused_unless_one_is_given() {
    let bench = Bench::new();
    bench.write("mixed/a.jsonl", jsonl(&["one"]));
    bench.write("mixed/b.txt", jsonl(&["two"]));
    for path in ["mixed", "mixed/*"] {
        let error = bench.resolve(&DatasetRef::at(path)).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, SourceError::Mixed { .. }), "{text}");
        assert!(
            text.contains("mixed/a.jsonl") && text.contains("mixed/b.txt"),
            "{text}"
        );
        assert_eq!(
            (error.field(), error.code()),
            ("format", ErrorCode::InvalidRequest)
        );
    }
    let given = |format: &str| dataset(json!({"path": "mixed", "format": format}));
    assert_eq!(bench.tokenize(&given("jsonl")).unwrap().documents(), 2);
    assert_eq!(bench.tokenize(&given("text")).unwrap().documents(), 2);
    let error = bench.resolve(&given("parquet")).unwrap_err();
    assert!(matches!(&error, SourceError::NotParquet(name) if name == "mixed/a.jsonl"));
    assert_eq!(error.field(), "format");
}

#[test]
fn the_names_of_files_tell_the_format_of_a_directory() {
    let bench = Bench::new();
    bench.write("web/a.jsonl", jsonl(&["one"]));
    bench.write("web/b.ndjson", jsonl(&["two"]));
    assert_eq!(
        bench.source(&DatasetRef::at("web")).format(),
        DatasetFormat::Jsonl
    );
    assert_eq!(
        bench.source(&DatasetRef::at("web/*")).format(),
        DatasetFormat::Jsonl
    );
    let found = bench.source(&DatasetRef::at("web/"));
    let names: Vec<&str> = found.files().iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["web/a.jsonl", "web/b.ndjson"]);
}

#[test]
fn a_dataset_is_in_exactly_one_place() {
    let bench = Bench::new();
    bench.write("a.txt", "text");
    for wrong in [
        json!({"name": "none"}),
        json!({"path": "a.txt", "documents": ["a"]}),
        json!({"path": "a.txt", "upload": "b"}),
    ] {
        let error = bench.resolve(&dataset(wrong)).unwrap_err();
        assert!(matches!(error, SourceError::NotOne), "{error}");
        assert_eq!(error.code(), ErrorCode::InvalidRequest);
    }
    let grouped = dataset(json!({"path": "a.txt", "group_by": "x"}));
    let error = bench.resolve(&grouped).unwrap_err();
    assert_eq!(
        (error.field(), error.code()),
        ("group_by", ErrorCode::InvalidRequest)
    );
    let inline = dataset(json!({"documents": ["a"], "format": "parquet"}));
    assert!(bench.resolve(&inline).is_err());
}

#[test]
fn paths_keep_their_codes() {
    let bench = Bench::new();
    bench.write("web/a.jsonl", "");
    std::fs::write(bench.dir.path().join("secret.jsonl"), "s").unwrap();
    symlink("../../secret.jsonl", bench.path("web/b.jsonl")).unwrap();
    for (path, code) in [
        ("../secret.jsonl", ErrorCode::PathOutsideRoot),
        ("../*.jsonl", ErrorCode::PathOutsideRoot),
        ("web", ErrorCode::PathOutsideRoot),
        ("web/*", ErrorCode::PathOutsideRoot),
        ("web/b.jsonl", ErrorCode::PathOutsideRoot),
        ("none", ErrorCode::DatasetUnreadable),
        ("none/*", ErrorCode::DatasetUnreadable),
        ("[", ErrorCode::DatasetUnreadable),
    ] {
        let error = bench.resolve(&DatasetRef::at(path)).unwrap_err();
        assert_eq!(
            (error.field(), error.code()),
            ("path", code),
            "{path}: {error}"
        );
        let outside = bench.dir.path().to_string_lossy().into_owned();
        assert!(!error.to_string().contains(&outside), "{error}");
    }
    assert!(bench.resolve(&DatasetRef::at("web/a*")).is_ok());
}

#[test]
fn an_upload_is_found_by_the_digest_it_had() {
    let bench = Bench::new();
    let stored = bench
        .uploads
        .store(jsonl(&["one"]).as_bytes(), 100)
        .unwrap();
    let upload = |digest: Option<&str>| DatasetRef {
        upload: Some("mine.jsonl".to_owned()),
        upload_digest: digest.map(str::to_owned),
        ..DatasetRef::default()
    };
    let store = bench.tokenize(&upload(Some(&stored.digest))).unwrap();
    assert_eq!(store.data_digest(), stored.digest);
    let error = bench.resolve(&upload(None)).unwrap_err();
    assert!(matches!(error, SourceError::NoUpload(_)));
    bench.uploads.remove(&stored.digest).unwrap();
    for digest in [&*stored.digest, "sha256:..", "../data/a"] {
        let error = bench.resolve(&upload(Some(digest))).unwrap_err();
        assert!(matches!(error, SourceError::UploadGone(_)), "{error:?}");
        assert_eq!(
            (error.field(), error.code()),
            ("upload", ErrorCode::DatasetUnreadable)
        );
    }
}

#[test]
fn a_dataset_of_the_command_line_may_be_anywhere() {
    let bench = Bench::new();
    bench.write("web/a.jsonl", jsonl(&["one"]));
    bench.write("web/b.jsonl", jsonl(&["two"]));
    symlink("../b.jsonl", bench.path("web/c.jsonl")).unwrap();
    bench.write("b.jsonl", jsonl(&["three"]));
    let base = bench.path("web").canonicalize().unwrap();
    let base = base.to_str().unwrap();
    let names = |path: &str| -> Vec<String> {
        let source = Source::local(&DatasetRef::at(path)).unwrap();
        assert!(source.files().iter().all(|file| file.path.is_file()));
        source
            .files()
            .iter()
            .map(|file| file.name.clone())
            .collect()
    };
    let all = ["a", "b", "c"].map(|name| format!("{base}/{name}.jsonl"));
    assert_eq!(names(base), all);
    assert_eq!(names(&format!("{base}/*.jsonl")), all);
    assert_eq!(names(&all[0]), all[..1]);
    // Tests run in the directory of the crate.
    assert_eq!(names("tests/data/chats.jsonl"), ["tests/data/chats.jsonl"]);
    assert_eq!(names("./tests/data/c*.jsonl"), ["./tests/data/chats.jsonl"]);
    assert_eq!(
        names("../data/tests/data/chats.jsonl"),
        ["../data/tests/data/chats.jsonl"]
    );
    let error = Source::local(&DatasetRef::at("tests/none")).unwrap_err();
    assert!(
        matches!(&error, SourceError::NotThere(path) if path == "tests/none"),
        "{error}"
    );
    let inline = Source::local(&dataset(json!({"documents": ["a"]}))).unwrap();
    assert!(inline.files().is_empty());
}
