//! Which files of a model's repository are of use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::{HubError, Snapshot};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const ADAPTER: &str = "adapter_model.safetensors";

/// The files that say what a model is, by how their names begin and end. They are at the top of
/// the repository, and small: the largest are vocabularies of some ten megabytes.
const DESCRIPTION: [(&str, &str); 11] = [
    ("config", ".json"),
    ("generation_config", ".json"),
    ("tokenizer", ".json"),
    ("tokenizer_config", ".json"),
    ("tokenizer", ".model"),
    ("special_tokens_map", ".json"),
    ("added_tokens", ".json"),
    ("vocab", ".json"),
    ("merges", ".txt"),
    ("model.safetensors.index", ".json"),
    ("adapter_config", ".json"),
];

/// More such files, of which only the beginning of the name is fixed.
const DESCRIPTION_FAMILIES: [(&str, &[&str]); 3] = [
    ("chat_template", &[".jinja", ".json"]),
    ("tokenizer", &[".json"]),
    ("vocab", &[".txt"]),
];

/// Whether a file describes a model: configuration, tokenizer, chat template, index of weights.
///
/// ```
/// assert!(assay_hub::describes_model("tokenizer_config.json"));
/// assert!(!assay_hub::describes_model("model.safetensors"));
/// assert!(!assay_hub::describes_model("original/config.json"));
/// ```
pub fn describes_model(path: &str) -> bool {
    let exact = DESCRIPTION
        .iter()
        .any(|(stem, end)| path.strip_suffix(end) == Some(stem));
    let family = DESCRIPTION_FAMILIES
        .iter()
        .any(|(stem, ends)| path.starts_with(stem) && ends.iter().any(|end| path.ends_with(end)));
    !path.contains('/') && (exact || family)
}

/// The files of a model's weights: `model.safetensors`, or else those that the index names, and
/// an adapter's. Never what is there a second time in another form: consolidated files, variants
/// such as `model.fp16.safetensors`, pickles, other frameworks.
///
/// `directory` is where [`Hub::fetch`](crate::Hub::fetch) has put the files that
/// [`describes_model`] is true of; the index is read there.
///
/// # Errors
/// [`HubError::NoWeights`] when there are none, [`HubError::Index`] when the index is not one or
/// names what the repository does not have or a file that is no safetensors.
pub fn weights_of_model(
    snapshot: &Snapshot,
    directory: &Path,
) -> Result<BTreeSet<String>, HubError> {
    let has = |path: &str| snapshot.file(path).is_some();
    let mut files = BTreeSet::new();
    if has(SINGLE) {
        files.insert(SINGLE.to_owned());
    } else if has(INDEX) {
        let path = directory.join(INDEX);
        let bytes = std::fs::read(&path).map_err(|source| HubError::io(&path, source))?;
        files = named_by_index(&bytes, &has).map_err(|detail| HubError::Index {
            repository: snapshot.repository.clone(),
            detail,
        })?;
    }
    if has(ADAPTER) {
        files.insert(ADAPTER.to_owned());
    }
    if files.is_empty() {
        return Err(HubError::NoWeights(snapshot.repository.clone()));
    }
    Ok(files)
}

/// The files of an adapter's weights, and nothing of a model that is in the same repository.
///
/// # Errors
/// [`HubError::NoWeights`] when there are none.
pub fn weights_of_adapter(snapshot: &Snapshot) -> Result<BTreeSet<String>, HubError> {
    match snapshot.file(ADAPTER) {
        Some(file) => Ok([file.path.clone()].into()),
        None => Err(HubError::NoWeights(snapshot.repository.clone())),
    }
}

fn named_by_index(bytes: &[u8], has: &dyn Fn(&str) -> bool) -> Result<BTreeSet<String>, String> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let files: BTreeSet<String> = index.weight_map.into_values().collect();
    for file in &files {
        if !file.ends_with(".safetensors") {
            return Err(format!(
                "it names `{file}`, which is not a safetensors file"
            ));
        }
        if !has(file) {
            return Err(format!("it names `{file}`, which the repository lacks"));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_describe_a_model() {
        for path in [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "tokenizer.model",
            "special_tokens_map.json",
            "added_tokens.json",
            "chat_template.jinja",
            "chat_template.json",
            "vocab.json",
            "vocab.txt",
            "merges.txt",
            "model.safetensors.index.json",
            "adapter_config.json",
        ] {
            assert!(describes_model(path), "{path}");
        }
        for path in [
            "README.md",
            ".gitattributes",
            "configuration.py",
            "model.safetensors",
            "adapter_model.safetensors",
            "pytorch_model.bin",
            "pytorch_model.bin.index.json",
            "model.fp16.safetensors.index.json",
            "tokenizer.bin",
            "training_args.pt",
            "flax_model.msgpack",
            "tf_model.h5",
            "model.onnx",
            "original/config.json",
            "original/tokenizer.model",
            "onnx/config.json",
            "tokenizer.json/x",
        ] {
            assert!(!describes_model(path), "{path}");
        }
    }

    #[test]
    fn an_index_names_files_that_are_there() {
        let has = |path: &str| path == "a.safetensors" || path == "b.safetensors";
        let index =
            |file: &str| format!(r#"{{"weight_map":{{"x":"a.safetensors","y":"{file}"}}}}"#);
        let named = |file: &str| named_by_index(index(file).as_bytes(), &has);
        assert_eq!(
            named("b.safetensors").unwrap(),
            ["a.safetensors", "b.safetensors"].map(str::to_owned).into()
        );
        assert!(named("c.safetensors").unwrap_err().contains("lacks"));
        assert!(named("b.bin").unwrap_err().contains("not a safetensors"));
        assert!(named_by_index(b"[]", &has).is_err());
    }
}
