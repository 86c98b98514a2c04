//! The documents of a dataset file, one after the other.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use assay_api::DatasetFormat;
use serde_json::{Map, Value};

use crate::error::{DataError, LineFault};
use crate::tokenize::DatasetSource;

/// Fields that an error lists at most.
const LISTED_FIELDS: usize = 20;

/// The documents of `source` in order, its limits left aside. Ends after the first error.
pub(crate) fn documents(
    source: &DatasetSource,
) -> Box<dyn Iterator<Item = Result<String, DataError>> + '_> {
    match source.format {
        DatasetFormat::Text => Box::new(std::iter::once_with(|| whole_text(&source.path))),
        DatasetFormat::Jsonl => match File::open(&source.path) {
            Ok(file) => Box::new(json_lines(source, BufReader::new(file))),
            Err(error) => Box::new(std::iter::once(Err(unreadable(&source.path, error)))),
        },
    }
}

/// The last component of a path: what errors call a dataset.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

pub(crate) fn unreadable(path: &Path, source: std::io::Error) -> DataError {
    DataError::Unreadable {
        file: file_name(path),
        source,
    }
}

fn whole_text(path: &Path) -> Result<String, DataError> {
    let bytes = fs::read(path).map_err(|e| unreadable(path, e))?;
    String::from_utf8(bytes).map_err(|e| DataError::NotUtf8 {
        file: file_name(path),
        offset: e.utf8_error().valid_up_to(),
    })
}

/// One document a line; blank lines are passed over. Holds one line at a time.
fn json_lines<'a>(
    source: &'a DatasetSource,
    mut reader: impl BufRead + 'a,
) -> impl Iterator<Item = Result<String, DataError>> + 'a {
    let mut line = Vec::new();
    let mut number = 0_u64;
    let mut failed = false;
    std::iter::from_fn(move || {
        while !failed {
            line.clear();
            number += 1;
            let document = match reader.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => document(line.trim_ascii_end(), &source.field).map_err(|fault| {
                    DataError::InvalidLine {
                        file: file_name(&source.path),
                        line: number,
                        fault,
                    }
                }),
                Err(error) => Err(unreadable(&source.path, error)),
            };
            failed = document.is_err();
            return Some(document);
        }
        None
    })
}

/// The document in one line: the string in `field` of a JSON object.
fn document(line: &[u8], field: &str) -> Result<String, LineFault> {
    let text = str::from_utf8(line).map_err(|e| LineFault::NotUtf8 {
        offset: e.valid_up_to(),
    })?;
    if text.starts_with('\u{feff}') {
        // It cannot be seen, so the parser's "expected value" would not help.
        return Err(LineFault::NotJson {
            column: 1,
            detail: "a byte order mark; save the file without one".to_owned(),
        });
    }
    let value = serde_json::from_str(text).map_err(|e| not_json(&e))?;
    let Value::Object(mut object) = value else {
        return Err(LineFault::NotAnObject {
            found: kind(&value),
        });
    };
    match object.get_mut(field) {
        Some(Value::String(text)) => Ok(std::mem::take(text)),
        Some(other) => {
            let found = kind(other);
            let fields = fields(&object);
            Err(LineFault::FieldNotAString {
                field: field.to_owned(),
                found,
                fields,
            })
        }
        None => Err(LineFault::FieldMissing {
            field: field.to_owned(),
            fields: fields(&object),
        }),
    }
}

fn not_json(error: &serde_json::Error) -> LineFault {
    let text = error.to_string();
    // The parser sees one line, so its own "at line 1 column n" would mislead.
    let detail = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(detail, _)| detail);
    LineFault::NotJson {
        column: error.column(),
        detail: detail.to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn fields(object: &Map<String, Value>) -> String {
    let quoted: Vec<String> = object
        .keys()
        .take(LISTED_FIELDS)
        .map(|name| format!("`{name}`"))
        .collect();
    match object.len() {
        0 => "no fields".to_owned(),
        n if n > LISTED_FIELDS => {
            format!("{} and {} more", quoted.join(", "), n - LISTED_FIELDS)
        }
        _ => quoted.join(", "),
    }
}
