//! The token cache: hits, damage, builders side by side.

use std::fs;
use std::os::unix::fs::MetadataExt;

use assay_api::ErrorCode;
use assay_data::{DataError, Reading};

use crate::bench::{Bench, content, jsonl};

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
fn a_cache_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let source = bench.write("there.txt", "text");
    fs::write(bench.cache(), "a file where the directory should be").unwrap();
    let error = bench.tokenize(&source).unwrap_err();
    assert!(matches!(error, DataError::Cache(_)), "{error:?}");
    assert_eq!(error.code(), ErrorCode::Internal);
}

#[test]
fn tokenizing_stops_when_nobody_waits() {
    let bench = Bench::new();
    let source = bench.source(&bench.write("a.jsonl", jsonl(&["a"])));
    for join in [None, Some("\n")] {
        let reading = Reading {
            join,
            ..bench.reading()
        };
        let (cache, digests) = (bench.cache(), bench.digests());
        let error = assay_data::tokenize_until(&source, &reading, &cache, &digests, &|| true);
        let error = error.unwrap_err();
        assert!(matches!(error, DataError::Cancelled), "{error:?}");
        assert!(bench.cached().is_empty());
    }
}
