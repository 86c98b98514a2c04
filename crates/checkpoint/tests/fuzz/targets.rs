//! What is damaged, and how much memory the damage may take.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::tree::Tree;

/// One kind of file.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Ends of the names of the files that are damaged.
    files: &'static [&'static str],
    /// Folders below the repository with checkpoints; the checkpoints are folders or GGUF files.
    within: &'static [&'static str],
    /// Whether the tokenizer and the chat template are built and used, instead of the weights.
    pub(crate) tokenizer: bool,
    /// Bytes of memory for each byte of a file that is damaged. The most that was found: 105 for
    /// JSON of objects with one field, 48 for its lists of numbers, 20 for the tokens of a GGUF file, 112 for
    /// the merges and 302 for the trie of pieces, which the tokenizers crate builds.
    pub(crate) factor: usize,
}

/// Bytes of memory for each byte of a file that is not: weights that are converted.
pub(crate) const SOUND_FACTOR: usize = 16;
/// Bytes of memory whatever the size: the blocks of the longest architecture, the tables of the
/// tokenizers crate, compiled expressions.
pub(crate) const CONSTANT: usize = 2 << 20;

const FOLDERS: &[&str] = &["tests/fixtures", "tests/fixtures/families"];

pub(crate) static TARGETS: [Target; 6] = [
    Target {
        name: "config",
        files: &["config.json"],
        within: FOLDERS,
        tokenizer: false,
        factor: 128,
    },
    Target {
        name: "safetensors",
        files: &[".safetensors", ".safetensors.index.json"],
        within: FOLDERS,
        tokenizer: false,
        factor: 128,
    },
    Target {
        name: "gguf",
        files: &[".gguf"],
        within: &["tests/fixtures/gguf"],
        tokenizer: false,
        factor: 64,
    },
    Target {
        name: "tokenizer",
        files: &[
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
        ],
        within: &["tests/fixtures"],
        tokenizer: true,
        factor: 512,
    },
    Target {
        name: "sentencepiece",
        files: &[
            "tokenizer.model",
            "tokenizer_config.json",
            "added_tokens.json",
        ],
        within: &["crates/checkpoint/tests/data/sentencepiece"],
        tokenizer: true,
        factor: 512,
    },
    Target {
        name: "gguf_tokenizer",
        files: &[".gguf"],
        within: &["tests/fixtures/gguf"],
        tokenizer: true,
        factor: 64,
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Target {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    pub(crate) fn damages(&self, file: &str) -> bool {
        file != "generation_config.json" && self.files.iter().any(|end| file.ends_with(end))
    }

    /// The checkpoints, in the order of their names.
    pub(crate) fn bases(&self) -> Vec<String> {
        let mut bases: Vec<String> = self
            .within
            .iter()
            .flat_map(|folder| {
                let entries = fs::read_dir(root().join(folder)).unwrap();
                entries.map(move |entry| {
                    format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy())
                })
            })
            .filter(|base| {
                let path = root().join(base);
                path.join("config.json").exists()
                    || path
                        .extension()
                        .is_some_and(|end| end == "gguf" || end == "model")
            })
            .filter(|base| files_of(base).iter().any(|(name, _)| self.damages(name)))
            .collect();
        bases.sort_unstable();
        bases
    }

    /// A field at the top of a damaged file of any of the checkpoints.
    pub(crate) fn graft(&self, number: usize) -> Option<(String, Tree)> {
        let bases = self.bases();
        let base = &bases[number % bases.len()];
        let files = files_of(base);
        let trees = files
            .iter()
            .filter(|(name, _)| self.damages(name))
            .filter_map(|(name, bytes)| super::files::read(name, bytes).tree);
        let mut pairs: Vec<_> = trees
            .filter_map(|tree| match tree {
                Tree::Object(pairs) => Some(pairs),
                _ => None,
            })
            .flatten()
            .collect();
        let index = (number / bases.len()).checked_rem(pairs.len())?;
        Some(pairs.swap_remove(index))
    }
}

/// The files of a checkpoint that are read, with their names.
pub(crate) fn files_of(base: &str) -> BTreeMap<String, Vec<u8>> {
    let path = root().join(base);
    let read = |path: &Path| fs::read(path).unwrap();
    if path.extension().is_some_and(|end| end == "model") {
        // A model of a tokenizer: beside the weights of another checkpoint.
        let mut files = files_of("tests/fixtures/llama_gqa");
        files.retain(|name, _| {
            !["tokenizer.json", "special_tokens_map.json"].contains(&name.as_str())
        });
        files.insert("tokenizer.model".into(), read(&path));
        files.insert("tokenizer_config.json".into(), ADDED.into());
        files.insert("added_tokens.json".into(), r#"{"<s>": 1}"#.into());
        return files;
    }
    if path.is_file() {
        return BTreeMap::from([("model.gguf".into(), read(&path))]);
    }
    let entries = fs::read_dir(&path).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .filter(|(name, _)| !["expected.json", "generation_config.json"].contains(&name.as_str()))
        .map(|(name, path)| (name, read(&path)))
        .collect()
}

/// Beside a model of a tokenizer.
const ADDED: &str = r#"{"add_bos_token": true, "legacy": false, "bos_token": "<s>",
    "eos_token": {"content": "</s>"}, "add_eos_token": false, "add_prefix_space": true,
    "tokenizer_class": "LlamaTokenizer"}"#;
