//! A dataset of a request.

use serde::de::{self, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// How a file is cut into documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DatasetFormat {
    /// The whole file is one document.
    Text,
    /// One JSON object a line; one of its fields is the document.
    Jsonl,
}

/// A dataset of a request: a path below the data root, or an object with options.
///
/// A plain string is the object with that `path` alone; answers always give the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DatasetRef {
    /// Name in the results; the default is the path. Unique within a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Path below the data root.
    pub path: String,
    /// Format; the default is `jsonl` for `.jsonl` and `text` for every other name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<DatasetFormat>,
    /// The field of a JSON line that holds the text; the default is `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
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
            name: None,
            path: path.into(),
            format: None,
            field: None,
            limit_documents: None,
            limit_tokens: None,
        }
    }

    /// The name in the results.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.path)
    }

    /// The format, by the option or else by the file's name.
    pub fn format(&self) -> DatasetFormat {
        self.format.unwrap_or_else(|| {
            let extension = std::path::Path::new(&self.path).extension();
            if extension.is_some_and(|e| e.eq_ignore_ascii_case("jsonl")) {
                DatasetFormat::Jsonl
            } else {
                DatasetFormat::Text
            }
        })
    }

    /// The field of a JSON line that holds the text.
    pub fn field(&self) -> &str {
        self.field.as_deref().unwrap_or("text")
    }
}

/// The object form, of which serde and utoipa derive the parts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DatasetOptions)]
struct Options {
    /// Name in the results; the default is the path. Unique within a job.
    name: Option<String>,
    /// Path below the data root.
    path: String,
    /// Format; the default is `jsonl` for `.jsonl` and `text` for every other name.
    format: Option<DatasetFormat>,
    /// The field of a JSON line that holds the text; the default is `text`.
    field: Option<String>,
    /// Take this many documents at most, from the start.
    #[schema(minimum = 1)]
    limit_documents: Option<u64>,
    /// Take whole documents while their tokens stay within this many, and always
    /// the first that has some.
    #[schema(minimum = 1)]
    limit_tokens: Option<u64>,
}

impl<'de> Deserialize<'de> for DatasetRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrObject;

        // serde's `untagged` would answer "did not match any variant"; a visitor keeps the
        // name of the field that is wrong.
        impl<'de> Visitor<'de> for StringOrObject {
            type Value = DatasetRef;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a path below the data root or an object with `path`")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<DatasetRef, E> {
                Ok(DatasetRef::at(path))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DatasetRef, A::Error> {
                let o = Options::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DatasetRef {
                    name: o.name,
                    path: o.path,
                    format: o.format,
                    field: o.field,
                    limit_documents: o.limit_documents,
                    limit_tokens: o.limit_tokens,
                })
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
            .item(Options::schema())
            .into()
    }
}

impl ToSchema for DatasetRef {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((DatasetFormat::name().into_owned(), DatasetFormat::schema()));
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
        assert_eq!(DatasetRef::at("x.txt").format(), DatasetFormat::Text);
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error =
            serde_json::from_str::<DatasetRef>(r#"{"path": "a", "fild": "b"}"#).unwrap_err();
        assert!(error.to_string().contains("fild"), "{error}");
    }
}
