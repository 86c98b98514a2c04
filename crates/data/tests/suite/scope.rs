//! What plans are made of.

use assay_api::{Bos, Convention, DatasetFormat, Method, Tail};
use assay_data::{MethodError, Reading, RowScope, prefix};
use serde_json::json;

use crate::bench::{Bench, dataset};

#[test]
fn a_scope_has_the_lengths_and_what_counts() {
    let bench = Bench::new();
    bench.copy("documents.jsonl");
    let rolling = Method::rolling(16);
    let whole = dataset(json!({"path": "documents.jsonl"}));
    let pairs = dataset(json!({"path": "documents.jsonl", "format": "pairs"}));
    for (dataset, prefix) in [(whole, Some(0)), (pairs, None)] {
        let tokens = bench.tokenize(&dataset).unwrap();
        let row = RowScope::new(&tokens, &rolling, prefix).unwrap();
        let scope = row.scope();
        let documents = || 0..tokens.documents();
        let lengths: Vec<u64> = documents().map(|d| tokens.ids(d).len() as u64).collect();
        assert_eq!((scope.lengths, scope.prefix), (&*lengths, prefix.is_some()));
        let counted: Option<Vec<_>> = documents().map(|d| tokens.counted(d)).collect();
        assert_eq!(scope.counted, counted.as_deref());
        assert_eq!(scope.counted.is_some(), tokens.has_mask());
    }
    let reading = Reading {
        join: Some("\n"),
        ..bench.reading()
    };
    let whole = dataset(json!({"path": "documents.jsonl"}));
    let tokens = bench.read(&whole, &reading).unwrap();
    let blocks = Method {
        convention: Convention::Blocks,
        tail: Some(Tail::Score),
        ..rolling
    };
    let row = RowScope::new(&tokens, &blocks, None).unwrap();
    let joined: u64 = row.scope().lengths.iter().sum();
    assert_eq!(joined, tokens.stream().len() as u64);
    assert!(row.scope().convention.is_joined() && row.scope().counted.is_none());
}

#[test]
fn what_stands_in_front_follows_from_method_and_format() {
    let bench = Bench::new();
    let tokenizer = &bench.tokenizer;
    let first = Some(tokenizer.prefix().unwrap());
    let bos = tokenizer.bos();
    let rolling = Method::rolling(16);
    let of = |bos| Method {
        convention: Convention::Llamacpp,
        bos: Some(bos),
        ..rolling.clone()
    };
    let auto = bos.filter(|_| tokenizer.adds_bos());
    for (method, format, expected) in [
        (rolling.clone(), DatasetFormat::Jsonl, first),
        (rolling.clone(), DatasetFormat::Pairs, first),
        (rolling.clone(), DatasetFormat::Chat, None),
        (of(Bos::Never), DatasetFormat::Text, None),
        (of(Bos::Auto), DatasetFormat::Text, auto),
    ] {
        assert_eq!(prefix(&method, format, tokenizer).unwrap(), expected);
    }
    match (
        prefix(&of(Bos::Always), DatasetFormat::Text, tokenizer),
        bos,
    ) {
        (Ok(found), Some(_)) => assert_eq!(found, bos),
        (Err(MethodError::NoBos), None) => {}
        other => panic!("{other:?}"),
    }
}
