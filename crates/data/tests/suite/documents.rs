//! From files to documents and their token ids.

use assay_api::DatasetRef;
use assay_scoring::DocumentFacts;
use sha2::{Digest, Sha256};

use crate::bench::{Bench, expected, jsonl};

#[test]
fn ids_are_the_reference_ones() {
    let bench = Bench::new();
    let expected = expected();
    let texts: Vec<&str> = expected.iter().map(|(text, _)| text.as_str()).collect();
    let lines = jsonl(&texts);
    let store = bench
        .tokenize(&bench.write("reference.jsonl", &lines))
        .unwrap();

    assert_eq!(store.documents(), 3);
    let mut hash = Sha256::new();
    for (document, (text, ids)) in (0..).zip(&expected) {
        assert_eq!(store.ids(document), ids);
        let facts = store.facts(document);
        assert_eq!(
            (facts.tokens, facts.bytes),
            (ids.len() as u64, text.len() as u64)
        );
        hash.update((ids.len() as u64).to_le_bytes());
        for id in ids {
            hash.update(id.to_le_bytes());
        }
    }
    // `rolling_bos` of the fixture's reference values.
    assert_eq!(
        store.facts(1),
        DocumentFacts {
            tokens: 713,
            bytes: 1025,
            words: 188
        }
    );
    assert_eq!(store.tokens_digest(), digest(hash));
    assert_eq!(store.data_digest(), digest(Sha256::new_with_prefix(lines)));
}

fn digest(hash: Sha256) -> String {
    let hex: Vec<String> = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{}", hex.concat())
}

#[test]
fn a_text_file_is_one_document() {
    let bench = Bench::new();
    let text = "two\r\n\r\nlines\u{a0}here \n";
    let store = bench.tokenize(&bench.write("prose.txt", text)).unwrap();
    assert_eq!(store.documents(), 1);
    assert_eq!(store.ids(0), bench.tokenizer.encode(text).unwrap());
    assert_eq!(
        (store.facts(0).bytes, store.facts(0).words),
        (text.len() as u64, 4)
    );
}

#[test]
fn blank_lines_are_passed_over_and_empty_documents_kept() {
    let bench = Bench::new();
    let lines = "\n{\"text\": \"one\"}\r\n  \t\n{\"n\": 1, \"text\": \"\"}\n\n{\"text\": \"last\"}";
    let store = bench.tokenize(&bench.write("gaps.jsonl", lines)).unwrap();
    let facts: Vec<_> = (0..store.documents()).map(|d| store.facts(d)).collect();
    assert_eq!(
        facts.iter().map(|f| (f.bytes, f.words)).collect::<Vec<_>>(),
        [(3, 1), (0, 1), (4, 1)]
    );
    assert_eq!((facts[1].tokens, store.ids(1)), (0, &[][..]));
    assert_eq!(store.ids(2), bench.tokenizer.encode("last").unwrap());
}

#[test]
fn another_field_is_another_dataset() {
    let bench = Bench::new();
    let text = bench.write(
        "both.jsonl",
        r#"{"text": "a question", "answer": "an answer"}"#,
    );
    let answer = DatasetRef {
        field: Some("answer".to_owned()),
        ..text.clone()
    };
    assert_eq!(
        bench.tokenize(&text).unwrap().ids(0),
        bench.tokenizer.encode("a question").unwrap()
    );
    assert_eq!(
        bench.tokenize(&answer).unwrap().ids(0),
        bench.tokenizer.encode("an answer").unwrap()
    );
    assert_eq!(bench.cached().len(), 2);
}

#[test]
fn many_documents_come_out_as_one_by_one() {
    let bench = Bench::new();
    // More than one batch, with lengths from nothing to a few kilobytes.
    let texts: Vec<String> = (0..20_000_usize)
        .map(|i| format!("{i} ").repeat(i % 61))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let store = bench
        .tokenize(&bench.write("many.jsonl", jsonl(&texts)))
        .unwrap();
    assert_eq!(store.documents(), 20_000);
    for (document, text) in (0..).zip(&texts).step_by(97) {
        assert_eq!(store.ids(document), bench.tokenizer.encode(text).unwrap());
        assert_eq!(store.facts(document).bytes, text.len() as u64);
    }
}
