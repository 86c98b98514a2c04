//! Files of every container that a dataset may come in.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::basic::Compression as Codec;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;

/// Gzip in members of at most `member` bytes, as concatenated files are.
pub(crate) fn gz(bytes: &[u8], member: usize) -> Vec<u8> {
    let members = bytes.chunks(member.max(1)).map(|chunk| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(chunk).unwrap();
        encoder.finish().unwrap()
    });
    members.flatten().collect()
}

/// Zstandard in frames of at most `frame` bytes.
pub(crate) fn zst(bytes: &[u8], frame: usize) -> Vec<u8> {
    let frames = bytes.chunks(frame.max(1));
    frames
        .flat_map(|chunk| zstd::encode_all(chunk, 3).unwrap())
        .collect()
}

/// A line of JSON for each record.
pub(crate) fn jsonl(records: &[Value]) -> Vec<u8> {
    let lines: Vec<String> = records.iter().map(Value::to_string).collect();
    (lines.join("\n") + "\n").into_bytes()
}

/// The values of a column of a row group.
pub(crate) enum Column {
    /// A string or null for each row of an `OPTIONAL BINARY`.
    Text(Vec<Option<String>>),
    /// A number for each row of a `REQUIRED INT64`.
    Number(Vec<i64>),
    /// Strings with their definition and repetition levels.
    Nested(Vec<String>, Vec<i16>, Vec<i16>),
}

/// A Parquet file; the schema is that of the message format, each group has its columns.
pub(crate) fn parquet(schema: &str, codec: Codec, groups: Vec<Vec<Column>>) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = WriterProperties::builder().set_compression(codec).build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    for columns in groups {
        let mut group = file.next_row_group().unwrap();
        for column in columns {
            let mut writer = group.next_column().unwrap().unwrap();
            match column {
                Column::Text(values) => {
                    let levels: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
                    let values = byte_arrays(values.into_iter().flatten());
                    let writer = writer.typed::<ByteArrayType>();
                    writer.write_batch(&values, Some(&levels), None).unwrap();
                }
                Column::Number(values) => {
                    let writer = writer.typed::<Int64Type>();
                    writer.write_batch(&values, None, None).unwrap();
                }
                Column::Nested(values, defined, repeated) => {
                    let values = byte_arrays(values.into_iter());
                    let writer = writer.typed::<ByteArrayType>();
                    let levels = (Some(&defined[..]), Some(&repeated[..]));
                    writer.write_batch(&values, levels.0, levels.1).unwrap();
                }
            }
            writer.close().unwrap();
        }
        group.close().unwrap();
    }
    file.into_inner().unwrap()
}

fn byte_arrays(values: impl Iterator<Item = String>) -> Vec<ByteArray> {
    values.map(|value| value.as_bytes().into()).collect()
}

/// Texts in the column `text`, in row groups of `rows`, and their indices in the column `id`.
pub(crate) fn parquet_of_texts(texts: &[String], codec: Codec, rows: usize) -> Vec<u8> {
    let schema = "message schema { OPTIONAL BINARY text (UTF8); REQUIRED INT64 id; }";
    let groups = texts.chunks(rows).enumerate().map(|(group, texts)| {
        let ids = (0..texts.len()).map(|row| i64::try_from(group * rows + row).unwrap());
        let texts = texts.iter().cloned().map(Some).collect();
        vec![Column::Text(texts), Column::Number(ids.collect())]
    });
    parquet(schema, codec, groups.collect())
}

/// Conversations as datasets hold them: a list of groups of role and content.
pub(crate) fn parquet_of_chats(conversations: &[&Value]) -> Vec<u8> {
    let schema = "message schema { OPTIONAL group messages (LIST) { REPEATED group list {
        OPTIONAL group element { OPTIONAL BINARY role (UTF8); OPTIONAL BINARY content (UTF8); }
    } } }";
    let columns = ["role", "content"].map(|field| {
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for conversation in conversations {
            for (index, message) in conversation.as_array().unwrap().iter().enumerate() {
                values.push(message[field].as_str().unwrap().to_owned());
                // The list, its entry, the group in it and the string are all there.
                defined.push(4);
                repeated.push(i16::from(index > 0));
            }
        }
        Column::Nested(values, defined, repeated)
    });
    parquet(schema, Codec::SNAPPY, vec![columns.into()])
}
