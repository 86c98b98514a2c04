//! Files that are cut short, changed, or not what their names say.

use std::fs;
use std::io::Write as _;

use assay_api::{DatasetRef, ErrorCode};
use assay_data::DataError;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::bench::{Bench, data, jsonl};

fn lines() -> String {
    let texts: Vec<String> = (0..50).map(|i| format!("document {i}")).collect();
    jsonl(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

fn compressed() -> Vec<(&'static str, Vec<u8>)> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(lines().as_bytes()).unwrap();
    vec![
        ("a.jsonl.gz", encoder.finish().unwrap()),
        (
            "a.jsonl.zst",
            zstd::encode_all(lines().as_bytes(), 3).unwrap(),
        ),
    ]
}

fn is_damaged(error: &DataError) -> bool {
    matches!(error, DataError::Damaged { .. }) && error.code() == ErrorCode::DatasetInvalid
}

#[test]
fn what_is_cut_short_anywhere_is_refused() {
    let bench = Bench::new();
    for (name, bytes) in compressed() {
        for length in 0..bytes.len() {
            let error = bench.error(name, &bytes[..length]);
            assert!(is_damaged(&error), "{name} cut to {length}: {error:?}");
            let text = error.to_string();
            assert!(
                text.starts_with(name) && text.contains("too early"),
                "{text}"
            );
        }
        bench.tokenize(&bench.write(name, &bytes)).unwrap();
    }
}

#[test]
fn what_is_not_what_its_name_says_is_refused() {
    let bench = Bench::new();
    for name in [
        "b.jsonl.gz",
        "b.txt.zst",
        "b.parquet",
        "b.parquet.gz",
        "b.gz",
    ] {
        for bytes in ["plain text, and enough of it to be no header", "x"] {
            let error = bench.error(name, bytes);
            assert!(is_damaged(&error), "{name}: {error:?}");
        }
    }
    for (name, bytes) in compressed() {
        let garbage = [&bytes[..], b"behind the end"].concat();
        let error = bench.error(name, garbage);
        assert!(is_damaged(&error), "{name}: {error:?}");
    }
}

#[test]
fn a_changed_checksum_shows() {
    let bench = Bench::new();
    for (name, mut bytes) in compressed() {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        let error = bench.error(name, &bytes);
        assert!(
            matches!(
                error,
                DataError::Damaged { .. } | DataError::InvalidRecord { .. }
            ),
            "{name}: {error:?}"
        );
    }
}

#[test]
fn a_damaged_parquet_file_never_panics() {
    let bench = Bench::new();
    for name in [
        "snappy-v1.parquet",
        "zstd-v2.parquet",
        "chats.parquet",
        "none-v2.parquet",
    ] {
        let whole = fs::read(data(name)).unwrap();
        let read = |bytes: &[u8]| {
            let dataset = DatasetRef {
                field: (name == "chats.parquet").then(|| "topic".to_owned()),
                ..bench.write("damaged.parquet", bytes)
            };
            // An inspection reads the same and keeps nothing.
            let result = bench.inspect(&dataset);
            if let Err(error) = &result {
                let text = error.to_string();
                assert!(text.starts_with("damaged.parquet"), "{text}");
                assert!(text.len() < 500, "{text}");
            }
            result
        };
        read(&whole).unwrap();
        for length in (0..whole.len()).step_by(3) {
            assert!(
                is_damaged(&read(&whole[..length]).unwrap_err()),
                "{name} {length}"
            );
        }
        for at in 0..whole.len() {
            for flip in [0x01, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                // Some flips hit what nobody reads.
                let _ = read(&bytes);
            }
        }
    }
}
