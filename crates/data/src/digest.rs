//! Digests of a dataset, and the key of what is made of it.

use std::fs;
use std::io;

use assay_api::{DatasetFormat, Sample};
use assay_checkpoint::{DigestCache, FileState};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::container::{Compression, Layout};
use crate::error::DataError;
use crate::reader::unreadable;
use crate::source::{Content, Source, SourceFile};
use crate::store::{MAGIC, digest_text, hex};
use crate::tokenize::Reading;

/// The version of the `tokenizers` library, whose changes may move token ids.
const TOKENIZERS_VERSION: &str = "0.23.2";

/// What token ids follow from. What a format does not use is left out, so that it makes no
/// difference.
#[derive(Serialize)]
struct Key<'a> {
    layout: &'a [u8],
    tokenizers: &'a str,
    tokenizer: &'a str,
    data: &'a str,
    format: DatasetFormat,
    containers: Vec<(Layout, Compression)>,
    fields: Vec<&'a str>,
    /// The template, and the version of what renders it.
    chat: Option<(&'a str, &'a str)>,
    masked: bool,
    group_by: Option<&'a str>,
    sample: Option<Sample>,
    limit_documents: Option<u64>,
    limit_tokens: Option<u64>,
    join: Option<&'a str>,
}

/// SHA-256 in hexadecimal over what the tokens of `source` follow from.
pub(crate) fn key(source: &Source, reading: &Reading<'_>, data: &str) -> String {
    let fields = match source.format {
        DatasetFormat::Text => vec![],
        DatasetFormat::Pairs => vec![&*source.prompt_field, &*source.response_field],
        DatasetFormat::Jsonl | DatasetFormat::Parquet | DatasetFormat::Chat => vec![&*source.field],
    };
    let chat = reading
        .chat
        .filter(|_| source.format == DatasetFormat::Chat);
    let container = |file: &SourceFile| {
        let layout = Layout::of(&file.name, source.format);
        (layout, Compression::of(&file.name))
    };
    let mut containers: Vec<_> = source.files().iter().map(container).collect();
    if containers
        .iter()
        .all(|container| *container == containers[0])
    {
        containers.truncate(1);
    }
    let key = Key {
        layout: MAGIC,
        tokenizers: TOKENIZERS_VERSION,
        tokenizer: reading.tokenizer.digest(),
        data,
        // A column and a field are read alike.
        format: match source.format {
            DatasetFormat::Parquet => DatasetFormat::Jsonl,
            other => other,
        },
        containers,
        fields,
        chat: chat.map(|chat| (chat.digest(), env!("CARGO_PKG_VERSION"))),
        masked: source.is_masked(),
        group_by: source.group_by.as_deref(),
        sample: source.sample,
        limit_documents: source.limit_documents,
        limit_tokens: source.limit_tokens,
        join: reading.join,
    };
    let key = serde_json::to_vec(&key).expect("a struct of strings and numbers");
    hex(&Sha256::digest(key))
}

/// A dataset in the state that its digest is of.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) source: Source,
    /// `sha256:`, as [`TokenStore::data_digest`](crate::TokenStore::data_digest) says.
    pub(crate) digest: String,
}

impl Pinned {
    /// Takes the digest of a dataset, and notes the state of each file.
    pub(crate) fn new(source: &Source, digests: &DigestCache) -> Result<Self, DataError> {
        let mut source = source.clone();
        let digest = match &mut source.content {
            Content::Files(files) => {
                let each = files.iter_mut().map(|file| {
                    let (digest, state) = file_digest(file, digests)?;
                    file.state = Some(state);
                    Ok(digest)
                });
                of_files(&each.collect::<Result<Vec<_>, DataError>>()?)
            }
            Content::Inline(documents) => {
                let mut json = String::new();
                canonical(&Value::Array(documents.clone()), &mut json);
                digest_text(&Sha256::digest(json))
            }
        };
        Ok(Self { source, digest })
    }

    /// Refuses a dataset that was written to, or replaced, since: what was read may have been
    /// another state, even if the files are by now what they were.
    pub(crate) fn check(&self, digests: &DigestCache) -> Result<(), DataError> {
        let now = Self::new(&self.source, digests)?;
        if now.digest == self.digest && now.source.files() == self.source.files() {
            return Ok(());
        }
        Err(DataError::Changed {
            file: self.source.label(),
        })
    }
}

fn of_files(digests: &[String]) -> String {
    if let [digest] = digests {
        return format!("sha256:{digest}");
    }
    let mut hasher = Sha256::new();
    for digest in digests {
        hasher.update(digest);
        hasher.update("\n");
    }
    digest_text(&hasher.finalize())
}

fn file_digest(file: &SourceFile, digests: &DigestCache) -> Result<(String, FileState), DataError> {
    // Opening a pipe would wait for a writer that may never come.
    let hex = match fs::metadata(&file.path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::other("it is not a regular file")),
        Ok(_) => digests.file_in_state(&file.path),
        Err(error) => Err(error),
    };
    hex.map_err(|error| unreadable(&file.name, error))
}

/// JSON without spaces and with sorted keys.
fn canonical(value: &Value, json: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            json.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                json.push_str(&Value::from(key.as_str()).to_string());
                json.push(':');
                canonical(&fields[key], json);
            }
            json.push('}');
        }
        Value::Array(items) => {
            json.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                canonical(item, json);
            }
            json.push(']');
        }
        other => json.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_key_names_the_locked_tokenizers() {
        let lock = include_str!("../../../Cargo.lock");
        let entry = format!("name = \"tokenizers\"\nversion = \"{TOKENIZERS_VERSION}\"");
        assert!(
            lock.contains(&entry),
            "Cargo.lock has another version; follow it"
        );
    }

    /// The path leads to other bytes while it is read, and back before anybody looks again.
    #[test]
    fn what_is_read_is_what_the_digest_is_of() {
        use crate::reader::Bytes;

        let dir = tempfile::tempdir().unwrap();
        let digests = DigestCache::new(&dir.path().join("digests"));
        let path = dir.path().join("a.txt");
        fs::write(&path, "one").unwrap();
        let dataset = assay_api::DatasetRef::at(path.to_str().unwrap());
        let source = Source::local(&dataset).unwrap();
        let pinned = Pinned::new(&source, &digests).unwrap();
        let file = &pinned.source.files()[0];
        assert_eq!(Bytes::open(file).unwrap().text().unwrap(), "one");
        assert!(pinned.check(&digests).is_ok());

        let (aside, other) = (dir.path().join("aside"), dir.path().join("other"));
        fs::write(&other, "two").unwrap();
        fs::rename(&path, &aside).unwrap();
        fs::rename(&other, &path).unwrap();
        let refused = Bytes::open(file).err().unwrap();
        assert!(matches!(refused, DataError::Changed { .. }), "{refused}");
        fs::rename(&aside, &path).unwrap();
        let refused = pinned.check(&digests).unwrap_err();
        assert!(matches!(refused, DataError::Changed { .. }), "{refused}");
    }

    #[test]
    fn canonical_json_has_one_form() {
        let mut text = String::new();
        let value = json!([{"b": [1, 2.5, null], "a\"": {"z": true, "y": "é\n"}}, "s", {}, []]);
        canonical(&value, &mut text);
        assert_eq!(
            text,
            r#"[{"a\"":{"y":"é\n","z":true},"b":[1,2.5,null]},"s",{},[]]"#
        );
    }
}
