//! A directory of datasets, and a tokenizer to read them with.

use std::fs;
use std::path::{Path, PathBuf};

use assay_api::{DatasetInspection, DatasetRef};
use assay_checkpoint::{ChatTemplate, Checkpoint, DigestCache, TextTokenizer};
use assay_data::{DataError, Fetched, Reading, Root, Source, SourceError, TokenStore, Uploads};
use assay_scoring::DocumentFacts;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A data root, a directory of uploads and a cache of its own.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) tokenizer: TextTokenizer,
    pub(crate) uploads: Uploads,
    root: Root,
    chat: Option<ChatTemplate>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        Self {
            tokenizer: Checkpoint::open(&fixture()).unwrap().tokenizer().unwrap(),
            uploads: Uploads::open(&dir.path().join("uploads")).unwrap(),
            root: Root::open(&data).unwrap(),
            chat: None,
            dir,
        }
    }

    /// With a chat template beside the tokenizer.
    pub(crate) fn with_template(template: &str) -> Self {
        let mut bench = Self::new();
        let model = bench.dir.path().join("model");
        fs::create_dir(&model).unwrap();
        for file in fs::read_dir(fixture()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), model.join(file.file_name())).unwrap();
        }
        fs::write(model.join("chat_template.jinja"), template).unwrap();
        bench.chat = Checkpoint::open(&model).unwrap().chat_template().unwrap();
        assert!(bench.chat.is_some());
        bench
    }

    /// Where the file `name` of the data root is.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("data").join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> DatasetRef {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        DatasetRef::at(name)
    }

    /// Copies a file of this crate's fixtures.
    pub(crate) fn copy(&self, name: &str) -> DatasetRef {
        self.write(name, fs::read(data(name)).unwrap())
    }

    pub(crate) fn resolve(&self, dataset: &DatasetRef) -> Result<Source, SourceError> {
        Source::resolve(dataset, &self.root, &Fetched::default(), &self.uploads)
    }

    pub(crate) fn source(&self, dataset: &DatasetRef) -> Source {
        self.resolve(dataset)
            .unwrap_or_else(|error| panic!("{}: {error}", dataset.name()))
    }

    /// Each document alone, without offsets.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            tokenizer: &self.tokenizer,
            chat: self.chat.as_ref(),
            join: None,
            offsets: false,
        }
    }

    pub(crate) fn tokenize(&self, dataset: &DatasetRef) -> Result<TokenStore, DataError> {
        self.read(dataset, &self.reading())
    }

    pub(crate) fn read(
        &self,
        dataset: &DatasetRef,
        reading: &Reading<'_>,
    ) -> Result<TokenStore, DataError> {
        let source = self.source(dataset);
        assay_data::tokenize(&source, reading, &self.cache(), &self.digests())
    }

    /// Joined by `join`, with offsets.
    pub(crate) fn join(&self, dataset: &DatasetRef, join: &str) -> TokenStore {
        let reading = Reading {
            join: Some(join),
            offsets: true,
            ..self.reading()
        };
        self.read(dataset, &reading).unwrap()
    }

    pub(crate) fn inspect(&self, dataset: &DatasetRef) -> Result<DatasetInspection, DataError> {
        let source = self.source(dataset);
        let tokenizer = Some(&self.tokenizer);
        assay_data::inspect(
            &source,
            tokenizer,
            self.chat.as_ref(),
            &self.digests(),
            &|| false,
        )
    }

    pub(crate) fn digests(&self) -> DigestCache {
        DigestCache::new(&self.dir.path().join("digests"))
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

    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text).unwrap()
    }
}

pub(crate) fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/llama_gqa")
}

/// A file of this crate's fixtures.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// The records of a fixture.
pub(crate) fn records(name: &str) -> Vec<Value> {
    let lines = fs::read_to_string(data(name)).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
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

/// The dataset that a JSON object in a request is.
pub(crate) fn dataset(json: Value) -> DatasetRef {
    serde_json::from_value(json).unwrap()
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
