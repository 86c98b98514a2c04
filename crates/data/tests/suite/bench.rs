//! A directory of datasets, and a tokenizer to read them with.

use std::fs;
use std::path::{Path, PathBuf};

use assay_api::DatasetRef;
use assay_checkpoint::{Checkpoint, DigestCache, TextTokenizer};
use assay_data::{DataError, DatasetSource, TokenStore, tokenize};
use assay_scoring::DocumentFacts;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A dataset file and a cache of its own.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) tokenizer: TextTokenizer,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let tokenizer = Checkpoint::open(&fixture()).unwrap().tokenizer().unwrap();
        Self {
            dir: tempfile::tempdir().unwrap(),
            tokenizer,
        }
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> DatasetSource {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        DatasetSource {
            path,
            format: DatasetRef::at(name).format(),
            field: "text".to_owned(),
            limit_documents: None,
            limit_tokens: None,
        }
    }

    pub(crate) fn tokenize(&self, source: &DatasetSource) -> Result<TokenStore, DataError> {
        let digests = DigestCache::new(&self.dir.path().join("digests"));
        tokenize(source, &self.tokenizer, &self.cache(), &digests)
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    pub(crate) fn cached(&self) -> Vec<PathBuf> {
        fs::read_dir(self.cache())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }

    pub(crate) fn error(&self, name: &str, bytes: impl AsRef<[u8]>) -> DataError {
        self.tokenize(&self.write(name, bytes)).expect_err(name)
    }
}

pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/llama_gqa")
}

/// (text, ids without special tokens) from the fixture's reference values.
pub(crate) fn expected() -> Vec<(String, Vec<u32>)> {
    let json = fs::read(fixture().join("expected.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    ["short", "long", "mixed"]
        .iter()
        .map(|case| {
            let case = &json["tokens"][case];
            let text = case["text"].as_str().unwrap().to_owned();
            (
                text,
                serde_json::from_value(case["without_special"].clone()).unwrap(),
            )
        })
        .collect()
}

pub(crate) fn jsonl(texts: &[&str]) -> String {
    let line = |text: &&str| format!("{}\n", json!({ "text": text }));
    texts.iter().map(line).collect::<Vec<_>>().concat()
}

pub(crate) fn content(store: &TokenStore) -> Vec<(Vec<u32>, DocumentFacts)> {
    (0..store.documents())
        .map(|d| (store.ids(d).to_vec(), store.facts(d)))
        .collect()
}
