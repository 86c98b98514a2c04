//! The records of a dataset, one after the other, from whatever holds them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::container::Layout;
use crate::error::{DataError, Place, RecordFault};
use crate::reader::Bytes;
use crate::rows::Rows;
use crate::source::{Content, Source, SourceFile};

/// What one document is made of.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) place: Place,
    pub(crate) body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    /// A text without fields.
    Text(String),
    /// An object; the JSON of the chat messages beside it, their keys in the order of the file.
    Fields(Map<String, Value>, Option<String>),
}

/// Records that are read in order.
pub(crate) trait Records {
    /// The next record. Nothing is read after an error.
    fn next(&mut self) -> Result<Option<Record>, DataError>;

    /// Passes over a record, looking at as little of it as it takes. False at the end.
    fn skip(&mut self) -> Result<bool, DataError>;
}

/// The records of the file or of the inline documents number `index`; none after the last.
pub(crate) fn open(
    source: &Source,
    index: usize,
) -> Result<Option<Box<dyn Records + '_>>, DataError> {
    let files = match &source.content {
        Content::Files(files) => files,
        Content::Inline(items) if index == 0 => {
            return Ok(Some(Box::new(Items { items, next: 0 })));
        }
        Content::Inline(_) => return Ok(None),
    };
    let Some(file) = files.get(index) else {
        return Ok(None);
    };
    Ok(Some(match Layout::of(&file.name, source.format) {
        Layout::Text => Box::new(WholeText { file: Some(file) }),
        Layout::JsonLines => Box::new(JsonLines::open(file, source.messages_field())?),
        Layout::Parquet => Box::new(Rows::open(file, source)?),
    }))
}

/// A whole file.
struct WholeText<'a> {
    file: Option<&'a SourceFile>,
}

impl Records for WholeText<'_> {
    fn next(&mut self) -> Result<Option<Record>, DataError> {
        let Some(file) = self.file.take() else {
            return Ok(None);
        };
        Ok(Some(Record {
            place: Place::File(file.name.clone()),
            body: Body::Text(Bytes::open(file)?.text()?),
        }))
    }

    fn skip(&mut self) -> Result<bool, DataError> {
        Ok(self.file.take().is_some())
    }
}

/// One object a line; blank lines are passed over. Holds one line at a time.
struct JsonLines<'a> {
    name: &'a str,
    bytes: Bytes,
    line: Vec<u8>,
    number: u64,
    messages: Option<&'a str>,
}

impl<'a> JsonLines<'a> {
    fn open(file: &'a SourceFile, messages: Option<&'a str>) -> Result<Self, DataError> {
        Ok(Self {
            name: &file.name,
            bytes: Bytes::open(file)?,
            line: Vec::new(),
            number: 0,
            messages,
        })
    }
}

impl Records for JsonLines<'_> {
    fn next(&mut self) -> Result<Option<Record>, DataError> {
        loop {
            self.line.clear();
            self.number += 1;
            if !self.bytes.line(&mut self.line, self.number)? {
                return Ok(None);
            }
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let place = Place::Line(self.name.to_owned(), self.number);
            return match object(self.line.trim_ascii_end(), self.messages) {
                Ok(body) => Ok(Some(Record { place, body })),
                Err(fault) => Err(DataError::invalid(place, fault)),
            };
        }
    }

    fn skip(&mut self) -> Result<bool, DataError> {
        loop {
            self.number += 1;
            match self.bytes.skip_line()? {
                Some(true) => return Ok(true),
                Some(false) => {}
                None => return Ok(false),
            }
        }
    }
}

/// The object in one line, and the JSON of its messages as it is written.
fn object(line: &[u8], messages: Option<&str>) -> Result<Body, RecordFault> {
    let text = str::from_utf8(line).map_err(|e| RecordFault::NotUtf8 {
        offset: e.valid_up_to(),
    })?;
    if text.starts_with('\u{feff}') {
        // It cannot be seen, so the parser's "expected value" would not help.
        return Err(RecordFault::NotJson {
            column: 1,
            detail: "a byte order mark; save the file without one".to_owned(),
        });
    }
    let fields = match serde_json::from_str(text).map_err(|e| not_json(&e))? {
        Value::Object(fields) => fields,
        other => {
            return Err(RecordFault::NotAnObject {
                found: kind(&other),
            });
        }
    };
    // A map of values forgets the order of the keys, which a template may write.
    let raw = match messages {
        Some(field) => serde_json::from_str::<BTreeMap<String, &RawValue>>(text)
            .map_err(|e| not_json(&e))?
            .remove(field)
            .map(|raw| raw.get().to_owned()),
        None => None,
    };
    Ok(Body::Fields(fields, raw))
}

fn not_json(error: &serde_json::Error) -> RecordFault {
    let text = error.to_string();
    // The parser sees one line, so its own "at line 1 column n" would mislead.
    let detail = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(detail, _)| detail);
    RecordFault::NotJson {
        column: error.column(),
        detail: detail.to_owned(),
    }
}

/// Documents that a request brings: texts or objects.
struct Items<'a> {
    items: &'a [Value],
    next: usize,
}

impl Records for Items<'_> {
    fn next(&mut self) -> Result<Option<Record>, DataError> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let place = Place::Item(self.next as u64);
        self.next += 1;
        let body = match item {
            Value::String(text) => Body::Text(text.clone()),
            Value::Object(fields) => Body::Fields(fields.clone(), None),
            other => {
                let found = kind(other);
                return Err(DataError::invalid(
                    place,
                    RecordFault::NotAnObject { found },
                ));
            }
        };
        Ok(Some(Record { place, body }))
    }

    fn skip(&mut self) -> Result<bool, DataError> {
        let is_there = self.next < self.items.len();
        self.next += usize::from(is_there);
        Ok(is_there)
    }
}

/// A value in words, with its article.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
