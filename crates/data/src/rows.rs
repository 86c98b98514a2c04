//! The rows of a Parquet file, a record each.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use assay_api::DatasetFormat;
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde_json::{Map, Number, Value};

use crate::documents::listed;
use crate::error::{DataError, Place, RecordFault};
use crate::reader::seekable;
use crate::records::{Body, Record, Records};
use crate::source::{Source, SourceFile};

/// Text that is decoded ahead, about.
const AHEAD_BYTES: u64 = 8 << 20;
/// Rows that are decoded ahead at most.
const AHEAD_ROWS: u64 = 1024;
/// Characters of what the decoder says.
const MAX_DETAIL: usize = 200;

/// The rows of a file, with the columns that are needed.
pub(crate) struct Rows<'a> {
    name: &'a str,
    decoder: RowIter<'static>,
    number: u64,
    messages: Option<&'a str>,
}

impl<'a> Rows<'a> {
    pub(crate) fn open(file: &'a SourceFile, source: &'a Source) -> Result<Self, DataError> {
        let content = seekable(file)?;
        let reader = guarded(&file.name, || SerializedFileReader::new(content))?;
        let wanted = wanted(source);
        let schema = reader.metadata().file_metadata().schema();
        let columns = columns(&file.name, schema, source, &wanted)?;
        let ahead = rows_ahead(reader.metadata(), &wanted);
        let root = schema.name().to_owned();
        let rows = guarded(&file.name, || {
            let projection = Type::group_type_builder(&root)
                .with_fields(columns)
                .build()?;
            RowIter::from_file_into(Box::new(reader)).project(Some(projection))
        })?;
        Ok(Self {
            name: &file.name,
            decoder: rows.with_batch_size(ahead),
            number: 0,
            messages: source.messages_field(),
        })
    }

    fn row(&mut self) -> Result<Option<Row>, DataError> {
        self.number += 1;
        let decoder = &mut self.decoder;
        match guarded(self.name, || decoder.next().transpose()) {
            // The decoder gives this text alone to tell it by.
            Err(DataError::Damaged { detail, .. }) if detail.contains("BYTE_ARRAY as String") => {
                let place = Place::Row(self.name.to_owned(), self.number);
                Err(DataError::invalid(place, RecordFault::StringNotUtf8))
            }
            other => other,
        }
    }
}

impl Records for Rows<'_> {
    fn next(&mut self) -> Result<Option<Record>, DataError> {
        let Some(row) = self.row()? else {
            return Ok(None);
        };
        let place = Place::Row(self.name.to_owned(), self.number);
        match fields(row, self.messages) {
            Ok(body) => Ok(Some(Record { place, body })),
            Err(fault) => Err(DataError::invalid(place, fault)),
        }
    }

    fn skip(&mut self) -> Result<bool, DataError> {
        Ok(self.row()?.is_some())
    }
}

/// Runs the decoder, which panics at some damaged files.
fn guarded<T>(name: &str, call: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, DataError> {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(ParquetError::General(
            "its parts contradict each other".into(),
        ))
    });
    result.map_err(|error| DataError::Damaged {
        file: name.to_owned(),
        kind: "a Parquet file",
        detail: error.to_string().chars().take(MAX_DETAIL).collect(),
    })
}

/// Columns that the documents are made of, with the option that names each.
fn wanted(source: &Source) -> Vec<&str> {
    let mut wanted: Vec<&str> = match source.format {
        DatasetFormat::Pairs => vec![&source.prompt_field, &source.response_field],
        _ => vec![&source.field],
    };
    wanted.extend(source.group_by.as_deref());
    let mut met = HashSet::new();
    wanted.retain(|name| met.insert(*name));
    wanted
}

/// The columns of the schema that are wanted, checked.
fn columns(
    file: &str,
    schema: &Type,
    source: &Source,
    wanted: &[&str],
) -> Result<Vec<Arc<Type>>, DataError> {
    let there = || listed(schema.get_fields().iter().map(|column| column.name()));
    wanted
        .iter()
        .map(|name| {
            let mut columns = schema.get_fields().iter();
            let Some(column) = columns.find(|column| column.name() == *name) else {
                return Err(DataError::ColumnMissing {
                    file: file.to_owned(),
                    field: (*name).to_owned(),
                    columns: there(),
                });
            };
            let is_text =
                source.format != DatasetFormat::Chat && source.group_by.as_deref() != Some(*name);
            match described(column).filter(|_| is_text) {
                Some(found) => Err(DataError::ColumnNotStrings {
                    file: file.to_owned(),
                    field: (*name).to_owned(),
                    found,
                    columns: there(),
                }),
                None => Ok(Arc::clone(column)),
            }
        })
        .collect()
}

/// What a column holds, if that is not strings.
fn described(column: &Type) -> Option<String> {
    if column.is_group() {
        return Some("lists or structs".to_owned());
    }
    match column.get_physical_type() {
        PhysicalType::BYTE_ARRAY => None,
        other => Some(format!("values of type {other}")),
    }
}

/// Rows that are decoded at once: few, where they are long.
fn rows_ahead(metadata: &ParquetMetaData, wanted: &[&str]) -> usize {
    let longest = metadata.row_groups().iter().map(|group| {
        let bytes: i64 = group
            .columns()
            .iter()
            .filter(|column| {
                let parts = column.column_path().parts();
                parts.first().is_some_and(|name| wanted.contains(&&**name))
            })
            .map(|column| column.uncompressed_size().max(0))
            .fold(0, i64::saturating_add);
        bytes.unsigned_abs() / group.num_rows().max(1).unsigned_abs()
    });
    let rows = AHEAD_BYTES / longest.max().unwrap_or(0).max(1);
    usize::try_from(rows.clamp(1, AHEAD_ROWS)).expect("a small number")
}

fn fields(row: Row, messages: Option<&str>) -> Result<Body, RecordFault> {
    let mut raw = None;
    let mut fields = Map::new();
    for (name, field) in row.into_columns() {
        if messages == Some(&*name) {
            let mut json = String::new();
            write(&field, &mut json)?;
            raw = Some(json);
        }
        fields.insert(name, value(field)?);
    }
    Ok(Body::Fields(fields, raw))
}

/// A value as JSON has it. In a struct, what is null is left out: Parquet cannot tell it from what
/// is not there.
fn value(field: Field) -> Result<Value, RecordFault> {
    Ok(match field {
        Field::Str(text) => Value::String(text),
        Field::Bytes(bytes) => match str::from_utf8(bytes.data()) {
            Ok(text) => Value::String(text.to_owned()),
            Err(_) => return Err(RecordFault::StringNotUtf8),
        },
        Field::Null => Value::Null,
        Field::Bool(value) => Value::Bool(value),
        Field::Byte(number) => number.into(),
        Field::Short(number) => number.into(),
        Field::Int(number) => number.into(),
        Field::Long(number) => number.into(),
        Field::UByte(number) => number.into(),
        Field::UShort(number) => number.into(),
        Field::UInt(number) => number.into(),
        Field::ULong(number) => number.into(),
        Field::Float16(number) => float(number.into()),
        Field::Float(number) => float(number.into()),
        Field::Double(number) => float(number),
        Field::Group(row) => Value::Object(
            row.into_columns()
                .into_iter()
                .filter(|(_, field)| *field != Field::Null)
                .map(|(name, field)| Ok((name, value(field)?)))
                .collect::<Result<_, _>>()?,
        ),
        Field::ListInternal(list) => {
            let elements = list.elements().iter().cloned();
            Value::Array(elements.map(value).collect::<Result<_, _>>()?)
        }
        Field::MapInternal(map) => Value::Object(
            map.entries()
                .iter()
                .map(|(key, field)| Ok((key_text(key)?, value(field.clone())?)))
                .collect::<Result<_, _>>()?,
        ),
        // Dates, times and decimals, as they are written.
        other => Value::String(other.to_string()),
    })
}

/// Infinities and NaN are null, as in JSON.
fn float(number: f64) -> Value {
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

fn key_text(key: &Field) -> Result<String, RecordFault> {
    Ok(match value(key.clone())? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

/// [`value`] as JSON, with the fields of a struct in the order of the schema.
fn write(field: &Field, json: &mut String) -> Result<(), RecordFault> {
    let mut pairs = |pairs: &mut dyn Iterator<Item = Result<(String, &Field), RecordFault>>| {
        json.push('{');
        for (index, pair) in pairs.enumerate() {
            let (name, field) = pair?;
            if index > 0 {
                json.push(',');
            }
            json.push_str(&Value::String(name).to_string());
            json.push(':');
            write(field, json)?;
        }
        json.push('}');
        Ok(())
    };
    match field {
        Field::Group(row) => pairs(
            &mut row
                .get_column_iter()
                .filter(|(_, field)| **field != Field::Null)
                .map(|(name, field)| Ok((name.clone(), field))),
        ),
        Field::MapInternal(map) => pairs(
            &mut map
                .entries()
                .iter()
                .map(|(key, field)| Ok((key_text(key)?, field))),
        ),
        Field::ListInternal(list) => {
            json.push('[');
            for (index, element) in list.elements().iter().enumerate() {
                if index > 0 {
                    json.push(',');
                }
                write(element, json)?;
            }
            json.push(']');
            Ok(())
        }
        other => {
            json.push_str(&value(other.clone())?.to_string());
            Ok(())
        }
    }
}
