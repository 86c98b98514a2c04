//! One text in every container: the same tokens.

use std::fs;
use std::io::Write as _;

use assay_api::{DatasetFormat, DatasetRef};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::bench::{Bench, content, data, dataset, records};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

#[test]
fn every_container_gives_the_same_tokens() {
    let bench = Bench::new();
    let lines = fs::read(data("documents.jsonl")).unwrap();
    let parquet = fs::read(data("documents.parquet")).unwrap();
    let plain = bench.tokenize(&bench.write("a.jsonl", &lines)).unwrap();
    let middle = lines.len() / 2;
    let line_ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let second = line_ends.map(|(at, _)| at + 1).nth(1).unwrap();

    bench.write("parts/1.jsonl", &lines[..second]);
    bench.write("parts/2.jsonl.gz", gzip(&lines[second..]));
    let windows = String::from_utf8(lines.clone())
        .unwrap()
        .replace('\n', "\r\n");
    let texts: Vec<Value> = records("documents.jsonl")
        .iter()
        .map(|record| record["text"].clone())
        .collect();
    let upload = bench.uploads.store(&gzip(&lines)[..], u64::MAX).unwrap();
    let variants = [
        bench.write("b.ndjson", &lines),
        bench.write("c.jsonl", windows),
        bench.write("d.jsonl.gz", gzip(&lines)),
        // Members that end in the middle of a line, and an empty one.
        bench.write(
            "e.JSONL.GZ",
            [gzip(&lines[..middle]), gzip(b""), gzip(&lines[middle..])].concat(),
        ),
        bench.write("f.jsonl.zst", zstd(&lines)),
        bench.write(
            "g.ndjson.zst",
            [zstd(&lines[..middle]), zstd(&lines[middle..])].concat(),
        ),
        bench.write("h.parquet", &parquet),
        bench.write("i.parquet.gz", gzip(&parquet)),
        bench.write("j.parquet.zst", zstd(&parquet)),
        dataset(json!({"path": "h.parquet", "format": "jsonl"})),
        dataset(json!({"path": "h.parquet", "field": "large"})),
        dataset(json!({"path": "h.parquet", "field": "view"})),
        dataset(json!({"path": "h.parquet", "field": "coded"})),
        dataset(json!({"path": "h.parquet", "field": "bytes"})),
        DatasetRef::at("parts"),
        DatasetRef::at("parts/*"),
        DatasetRef::at("**/[12].jsonl*"),
        dataset(json!({ "documents": texts })),
        dataset(json!({ "documents": records("documents.jsonl") })),
        dataset(json!({"upload": "my.jsonl.gz", "upload_digest": upload.digest})),
    ];
    for variant in variants {
        let store = bench
            .tokenize(&variant)
            .unwrap_or_else(|error| panic!("{variant:?}: {error}"));
        assert_eq!(store.tokens_digest(), plain.tokens_digest(), "{variant:?}");
        assert_eq!(content(&store), content(&plain), "{variant:?}");
        let inspected = bench.inspect(&variant).unwrap();
        assert_eq!(inspected.documents, plain.documents());
        assert_eq!(inspected.digest, store.data_digest());
    }
}

#[test]
fn every_codec_of_parquet_is_read() {
    let bench = Bench::new();
    let plain = bench.tokenize(&bench.copy("documents.jsonl")).unwrap();
    for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"] {
        for version in 1..=2 {
            let name = format!("{codec}-v{version}.parquet");
            let store = bench.tokenize(&bench.copy(&name)).expect(&name);
            assert_eq!(store.tokens_digest(), plain.tokens_digest(), "{name}");
        }
    }
}

#[test]
fn a_compressed_text_is_the_text() {
    let bench = Bench::new();
    let text = "two\r\n\r\nlines\u{a0}here \n";
    let plain = bench.tokenize(&bench.write("a.txt", text)).unwrap();
    for (name, bytes) in [
        ("a.txt.gz", gzip(text.as_bytes())),
        ("a.zst", zstd(text.as_bytes())),
        ("a.md.gz", gzip(text.as_bytes())),
    ] {
        let store = bench.tokenize(&bench.write(name, bytes)).unwrap();
        assert_eq!(content(&store), content(&plain), "{name}");
    }
}

#[test]
fn a_directory_of_texts_is_a_document_a_file_by_name() {
    let bench = Bench::new();
    bench.write("books/b.txt", "second");
    bench.write("books/a/z.txt.gz", gzip(b"first"));
    bench.write("books/c.TXT", "third");
    bench.write("books/notes.md", "not taken");
    let books = DatasetRef::at("books");
    assert_eq!(bench.source(&books).format(), DatasetFormat::Text);
    let store = bench.tokenize(&books).unwrap();
    let ids = ["first", "second", "third"].map(|text| bench.encode(text));
    assert_eq!(store.documents(), 3);
    for (document, ids) in (0..).zip(&ids) {
        assert_eq!(store.ids(document), ids);
    }
    let one = DatasetRef {
        limit_documents: Some(1),
        ..books
    };
    assert_eq!(bench.tokenize(&one).unwrap().documents(), 1);
}

#[test]
fn the_digest_of_several_files_is_of_digests_in_order() {
    let bench = Bench::new();
    bench.write("d/a.txt", "one");
    bench.write("d/b.txt", "two");
    let digest = |path: &str| {
        let store = bench.tokenize(&DatasetRef::at(path)).unwrap();
        store.data_digest().to_owned()
    };
    // sha256 of the lines with sha256("one") and sha256("two").
    assert_eq!(
        digest("d"),
        "sha256:55630d5d5f11663af2f7090957091cd48279571549cc6fc72fe533cf20c1814b"
    );
    assert_eq!(digest("d/*"), digest("d"));
    assert_eq!(digest("d/a*"), digest("d/a.txt"));
    bench.write("e/x.txt", "two");
    bench.write("e/y.txt", "one");
    assert_ne!(digest("e"), digest("d"));
}

#[test]
fn inline_documents_have_a_digest_of_their_json() {
    let bench = Bench::new();
    let digest = |documents: Value| {
        let store = bench
            .tokenize(&dataset(json!({"documents": documents})))
            .unwrap();
        store.data_digest().to_owned()
    };
    let one = digest(json!([{"text": "a", "id": 1}]));
    assert_eq!(
        one,
        "sha256:3d156891e14d20c2e390a896744e57d69751a209cc187e572afe2b187503d278"
    );
    assert_eq!(digest(json!([{"id": 1, "text": "a"}])), one);
    assert_ne!(digest(json!([{"id": 2, "text": "a"}])), one);
}
