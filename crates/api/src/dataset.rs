//! A dataset of a request.

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::one_or_many::Object;

/// What the documents of a dataset are.
///
/// How a file holds them follows from its name: JSON lines, or Parquet for `.parquet`; with `.gz`
/// or `.zst` behind, compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatasetFormat {
    /// The whole file is one document.
    Text,
    /// One JSON object a line; the string in `field` is the document.
    Jsonl,
    /// A Parquet file; each row's string in the column `field` is a document.
    Parquet,
    /// Each record holds chat messages (`[{"role": .., "content": ..}, ..]`) in `field`; the
    /// checkpoint's chat template makes the text. `rolling` only.
    Chat,
    /// Each record holds a prompt and a response, the document is one after the other.
    /// `rolling` only.
    Pairs,
}

/// Which tokens of a document count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Score {
    /// All.
    All,
    /// `chat`: the tokens of the assistant's turns, which is the default there: what the
    /// template marks by `{% generation %}`, else all that a turn adds to the prompt before it.
    Assistant,
    /// `pairs`: the tokens of the response, which is the default there.
    Response,
}

/// A reproducible sample of documents.
///
/// Of the documents 0, 1, .. the `documents` with the smallest keys are taken, in their order; the
/// key of document i is SHA-256 over `seed` and i, each as 8 bytes, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Documents to take; all, if the dataset has fewer.
    #[schema(minimum = 1)]
    pub documents: u64,
    /// Another seed, another sample.
    #[serde(default)]
    pub seed: u64,
}

/// A dataset of a request: a path below the data root, or an object with options.
///
/// A plain string is the object with that `path` alone; answers always give the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatasetRef {
    /// Name in the results; the default is the path. Unique within a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path below the data root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Name of an uploaded dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// `sha256:` of the upload that the name stood for when the job was posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_digest: Option<String>,
    /// The documents themselves; answers leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documents: Option<Vec<Value>>,
    /// What the documents are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DatasetFormat>,
    /// The field that holds the text, or the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// `pairs`: the field that holds the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_field: Option<String>,
    /// `pairs`: the field that holds the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_field: Option<String>,
    /// Which tokens count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// The field whose values divide the documents into groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<String>,
    /// Take a sample of the documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// Take this many documents at most, from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_documents: Option<u64>,
    /// Take whole documents while their tokens stay within this many, and always
    /// the first that has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_tokens: Option<u64>,
}

impl DatasetRef {
    /// The dataset at `path` with every option left out.
    pub fn at(path: impl Into<String>) -> Self {
        Self {
            path: Some(path.into()),
            ..Self::default()
        }
    }

    /// The name in the results.
    pub fn name(&self) -> &str {
        [&self.name, &self.path, &self.upload]
            .into_iter()
            .find_map(Option::as_deref)
            .unwrap_or("documents")
    }

    /// The format, by the option or else by the file's name. Inline documents that are strings
    /// and not objects are read as if they were in the field.
    pub fn format(&self) -> DatasetFormat {
        self.format.unwrap_or_else(|| {
            let Some(name) = self.path.as_deref().or(self.upload.as_deref()) else {
                return DatasetFormat::Jsonl;
            };
            format_of(name)
        })
    }

    /// The field of a record that holds the text, or the messages.
    pub fn field(&self) -> &str {
        let default = match self.format() {
            DatasetFormat::Chat => "messages",
            _ => "text",
        };
        self.field.as_deref().unwrap_or(default)
    }

    /// The field of a record that holds the prompt.
    pub fn prompt_field(&self) -> &str {
        self.prompt_field.as_deref().unwrap_or("prompt")
    }

    /// The field of a record that holds the response.
    pub fn response_field(&self) -> &str {
        self.response_field.as_deref().unwrap_or("response")
    }

    /// Which tokens count.
    pub fn score(&self) -> Score {
        self.score.unwrap_or(match self.format() {
            DatasetFormat::Chat => Score::Assistant,
            DatasetFormat::Pairs => Score::Response,
            DatasetFormat::Text | DatasetFormat::Jsonl | DatasetFormat::Parquet => Score::All,
        })
    }
}

/// The format that a file's name stands for; a directory or a glob stands for that of its last
/// component's suffix.
pub fn format_of(name: &str) -> DatasetFormat {
    let lower = name.to_ascii_lowercase();
    let plain = [".gz", ".zst"]
        .iter()
        .find_map(|suffix| lower.strip_suffix(suffix))
        .unwrap_or(&lower);
    let is = |suffixes: &[&str]| suffixes.iter().any(|suffix| plain.ends_with(suffix));
    if is(&[".jsonl", ".ndjson"]) {
        DatasetFormat::Jsonl
    } else if is(&[".parquet"]) {
        DatasetFormat::Parquet
    } else {
        DatasetFormat::Text
    }
}

/// The object form, of which serde and utoipa derive the parts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DatasetOptions)]
struct Options {
    /// Name in the results; the default is the path, the upload's name, or `documents`. Unique
    /// within a job.
    name: Option<String>,
    /// Path below the data root of a file, of a directory (all files below it whose names end in
    /// `.txt`, `.jsonl`, `.ndjson` or `.parquet`, also with `.gz` or `.zst` behind, by name), or a
    /// glob such as `web/*.jsonl.gz`. Where the service uses a hub, also a file of it,
    /// `hf://datasets/org/name@revision/file.jsonl`. One of `path`, `upload` and `documents` is
    /// required.
    path: Option<String>,
    /// Name of a dataset that was uploaded by `PUT /datasets/{name}`.
    upload: Option<String>,
    /// Only in answers: `sha256:` of the upload when the job was posted.
    #[schema(read_only)]
    upload_digest: Option<String>,
    /// The documents themselves, as strings or as records, 1 MB at most. The order of a record's
    /// keys is not kept, which matters only to a chat template that writes JSON.
    #[schema(value_type = Option<Vec<Value>>, min_items = 1)]
    documents: Option<Vec<Value>>,
    /// What the documents are; the default follows from the name of the file: `jsonl`, `parquet`,
    /// and `text` for every other name; for `documents` it is `jsonl`.
    format: Option<DatasetFormat>,
    /// The field of a record that holds the text (`jsonl`, `parquet`: the default is `text`) or
    /// the messages (`chat`: the default is `messages`).
    field: Option<String>,
    /// `pairs` only: the field that holds the prompt; the default is `prompt`.
    prompt_field: Option<String>,
    /// `pairs` only: the field that holds the response; the default is `response`.
    response_field: Option<String>,
    /// Which tokens count; the default is `assistant` for `chat`, `response` for `pairs`, and
    /// `all` for every other format.
    score: Option<Score>,
    /// A field of the records: documents with the same value form a group, and the result has the
    /// numbers of each group beside the whole. At most 1,000 groups.
    group_by: Option<String>,
    /// Take a reproducible sample of the documents; not together with `limit_documents`.
    #[schema(value_type = Option<Sample>)]
    sample: Option<Object<Sample>>,
    /// Take this many documents at most, from the start.
    #[schema(minimum = 1)]
    limit_documents: Option<u64>,
    /// Take whole documents while their tokens stay within this many, and always
    /// the first that has some.
    #[schema(minimum = 1)]
    limit_tokens: Option<u64>,
}

impl From<Options> for DatasetRef {
    fn from(o: Options) -> Self {
        Self {
            name: o.name,
            path: o.path,
            upload: o.upload,
            upload_digest: o.upload_digest,
            documents: o.documents,
            format: o.format,
            field: o.field,
            prompt_field: o.prompt_field,
            response_field: o.response_field,
            score: o.score,
            group_by: o.group_by,
            sample: o.sample.map(|sample| sample.0),
            limit_documents: o.limit_documents,
            limit_tokens: o.limit_tokens,
        }
    }
}

impl<'de> Deserialize<'de> for DatasetRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrObject;

        // serde's `untagged` would answer "did not match any variant"; a visitor keeps the
        // name of the field that is wrong.
        impl<'de> Visitor<'de> for StringOrObject {
            type Value = DatasetRef;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a path below the data root or an object with `path`, `upload` or `documents`",
                )
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<DatasetRef, E> {
                Ok(DatasetRef::at(path))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DatasetRef, A::Error> {
                Options::deserialize(MapAccessDeserializer::new(map)).map(DatasetRef::from)
            }
        }

        deserializer.deserialize_any(StringOrObject)
    }
}

impl PartialSchema for DatasetRef {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some("Path below the data root.")),
            )
            .item(RefOr::Ref::<Schema>(Ref::from_schema_name(
                "DatasetOptions",
            )))
            .into()
    }
}

impl ToSchema for DatasetRef {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((Options::name().into_owned(), Options::schema()));
        Options::schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_and_object_forms_are_equal() {
        let string: DatasetRef = serde_json::from_str(r#""a/b.jsonl""#).unwrap();
        let object: DatasetRef = serde_json::from_str(r#"{"path": "a/b.jsonl"}"#).unwrap();
        assert_eq!(string, object);
        assert_eq!(string.format(), DatasetFormat::Jsonl);
        assert_eq!(string.name(), "a/b.jsonl");
        assert_eq!(string.field(), "text");
        assert_eq!(string.score(), Score::All);
    }

    #[test]
    fn the_name_of_a_file_tells_its_format() {
        for (name, format) in [
            ("x.txt", DatasetFormat::Text),
            ("x.txt.gz", DatasetFormat::Text),
            ("x", DatasetFormat::Text),
            ("a/x.JSONL", DatasetFormat::Jsonl),
            ("x.jsonl.gz", DatasetFormat::Jsonl),
            ("a/*.ndjson.zst", DatasetFormat::Jsonl),
            ("x.parquet", DatasetFormat::Parquet),
        ] {
            assert_eq!(DatasetRef::at(name).format(), format, "{name}");
        }
    }

    #[test]
    fn a_chat_scores_the_assistant() {
        let chat: DatasetRef =
            serde_json::from_str(r#"{"path": "a.jsonl", "format": "chat"}"#).unwrap();
        assert_eq!((chat.field(), chat.score()), ("messages", Score::Assistant));
        let inline: DatasetRef = serde_json::from_str(r#"{"documents": ["a"]}"#).unwrap();
        assert_eq!(inline.format(), DatasetFormat::Jsonl);
        assert_eq!(inline.name(), "documents");
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error =
            serde_json::from_str::<DatasetRef>(r#"{"path": "a", "fild": "b"}"#).unwrap_err();
        assert!(error.to_string().contains("fild"), "{error}");
        let list = r#"{"path": "a", "sample": [3, 7]}"#;
        let error = serde_json::from_str::<DatasetRef>(list).unwrap_err();
        assert!(error.to_string().contains("expected an object"), "{error}");
    }
}
