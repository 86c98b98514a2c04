//! The documents of a dataset, one after the other.

use std::ops::Range;

use assay_api::{DatasetFormat, Score};
use assay_checkpoint::ChatTemplate;
use serde_json::{Map, Value};

use crate::error::{DataError, RecordFault};
use crate::records::{self, Body, Record, Records, kind};
use crate::sample;
use crate::source::Source;

/// Fields that an error lists at most.
const LISTED_FIELDS: usize = 20;
/// Bytes of the name of a group.
const MAX_GROUP_NAME: usize = 256;

/// A text, and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) text: String,
    /// The bytes whose tokens count, sorted and disjoint; all, if the dataset has no mask.
    pub(crate) counted: Vec<Range<usize>>,
    pub(crate) group: Option<String>,
}

/// The documents of a dataset in their order, its sample and its limit of documents applied.
/// Ends after the first error.
pub(crate) struct Documents<'a> {
    source: &'a Source,
    chat: Option<&'a ChatTemplate>,
    /// Records that are taken, by number, if not all are.
    taken: Option<std::vec::IntoIter<u64>>,
    /// Number of the next record.
    next: u64,
    /// Files that were opened.
    opened: usize,
    current: Option<Box<dyn Records + 'a>>,
    left: u64,
}

impl<'a> Documents<'a> {
    /// Opens the dataset. A sample takes a pass over its records first, which asks `cancelled`
    /// now and then whether to go on.
    pub(crate) fn open(
        source: &'a Source,
        chat: Option<&'a ChatTemplate>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, DataError> {
        if source.format == DatasetFormat::Chat && chat.is_none() {
            return Err(DataError::NoChatTemplate {
                file: source.label(),
            });
        }
        let taken = match source.sample {
            Some(sample) => {
                let records = count(source, cancelled)?;
                Some(sample::indices(sample, records).into_iter())
            }
            None => None,
        };
        Ok(Self {
            source,
            chat,
            taken,
            next: 0,
            opened: 0,
            current: None,
            left: source.limit_documents.unwrap_or(u64::MAX),
        })
    }

    fn document(&mut self) -> Result<Option<Document>, DataError> {
        let wanted = match &mut self.taken {
            Some(taken) => match taken.next() {
                Some(wanted) => wanted,
                None => return Ok(None),
            },
            None => self.next,
        };
        while self.current.is_some() || self.open_next()? {
            let Some(records) = &mut self.current else {
                continue;
            };
            if self.next < wanted {
                if records.skip()? {
                    self.next += 1;
                } else {
                    self.current = None;
                }
            } else if let Some(record) = records.next()? {
                self.next += 1;
                return document(self.source, self.chat, record).map(Some);
            } else {
                self.current = None;
            }
        }
        Ok(None)
    }

    fn open_next(&mut self) -> Result<bool, DataError> {
        self.current = records::open(self.source, self.opened)?;
        self.opened += 1;
        Ok(self.current.is_some())
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<Document, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let document = self.document().transpose();
        if !matches!(document, Some(Ok(_))) {
            self.left = 0;
        }
        document
    }
}

/// Records of a dataset.
fn count(source: &Source, cancelled: &dyn Fn() -> bool) -> Result<u64, DataError> {
    let mut count = 0_u64;
    let mut index = 0;
    while let Some(mut records) = records::open(source, index)? {
        while records.skip()? {
            count += 1;
            if count.is_multiple_of(1 << 16) && cancelled() {
                return Err(DataError::Cancelled);
            }
        }
        index += 1;
    }
    Ok(count)
}

fn document(
    source: &Source,
    chat: Option<&ChatTemplate>,
    record: Record,
) -> Result<Document, DataError> {
    let Record { place, body } = record;
    let (fields, messages) = match body {
        Body::Text(text) if source.is_plain() && source.group_by.is_none() => {
            return Ok(Document {
                text,
                ..Document::default()
            });
        }
        Body::Text(_) => {
            let found = "a string";
            return Err(DataError::invalid(
                place,
                RecordFault::NotAnObject { found },
            ));
        }
        Body::Fields(fields, messages) => (fields, messages),
    };
    let invalid = |fault| DataError::invalid(place.clone(), fault);
    let group = match &source.group_by {
        Some(field) => Some(group(&fields, field).map_err(invalid)?),
        None => None,
    };
    let (text, counted) = match (source.format, chat) {
        (DatasetFormat::Chat, Some(chat)) => {
            let value = get(&fields, &source.field, "field").map_err(invalid)?;
            let messages = messages.unwrap_or_else(|| value.to_string());
            let wants_assistant = source.score == Score::Assistant;
            let rendered = chat
                .render_json(&messages, wants_assistant)
                .map_err(|source| DataError::Chat { place, source })?;
            (rendered.text, rendered.assistant)
        }
        (DatasetFormat::Pairs, _) => {
            let (prompt, response) = (&source.prompt_field, &source.response_field);
            let prompt = string(&fields, prompt, "prompt_field").map_err(invalid)?;
            let response = string(&fields, response, "response_field").map_err(invalid)?;
            let text = format!("{prompt}{response}");
            let counted = prompt.len()..text.len();
            (text, vec![counted])
        }
        _ => {
            let text = string(&fields, &source.field, "field").map_err(invalid)?;
            (text.to_owned(), Vec::new())
        }
    };
    Ok(Document {
        text,
        counted,
        group,
    })
}

fn get<'a>(
    fields: &'a Map<String, Value>,
    field: &str,
    option: &'static str,
) -> Result<&'a Value, RecordFault> {
    fields.get(field).ok_or_else(|| RecordFault::FieldMissing {
        field: field.to_owned(),
        option,
        fields: listed(fields.keys()),
    })
}

fn string<'a>(
    fields: &'a Map<String, Value>,
    field: &str,
    option: &'static str,
) -> Result<&'a str, RecordFault> {
    let value = get(fields, field, option)?;
    value.as_str().ok_or_else(|| RecordFault::FieldOfWrongKind {
        field: field.to_owned(),
        option,
        found: kind(value),
        expected: "a string",
        fields: listed(fields.keys()),
    })
}

/// The name of a record's group: the string, or the number or boolean as JSON writes it.
fn group(fields: &Map<String, Value>, field: &str) -> Result<String, RecordFault> {
    let name = match get(fields, field, "group_by")? {
        Value::String(text) => text.clone(),
        value @ (Value::Number(_) | Value::Bool(_)) => value.to_string(),
        other => {
            return Err(RecordFault::FieldOfWrongKind {
                field: field.to_owned(),
                option: "group_by",
                found: kind(other),
                expected: "a string, a number or a boolean",
                fields: listed(fields.keys()),
            });
        }
    };
    if name.len() > MAX_GROUP_NAME || name.contains('\0') {
        return Err(RecordFault::GroupName {
            field: field.to_owned(),
            limit: MAX_GROUP_NAME,
        });
    }
    Ok(name)
}

/// Names in an error, not too many of them.
pub(crate) fn listed<T: AsRef<str>>(names: impl ExactSizeIterator<Item = T>) -> String {
    let count = names.len();
    let quoted: Vec<String> = names
        .take(LISTED_FIELDS)
        .map(|name| format!("`{}`", name.as_ref()))
        .collect();
    match count {
        0 => "no fields".to_owned(),
        n if n > LISTED_FIELDS => {
            format!("{} and {} more", quoted.join(", "), n - LISTED_FIELDS)
        }
        _ => quoted.join(", "),
    }
}
