//! Columns that are written as a Parquet file, a row group at a time.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// Rows of a row group: some MB.
pub(super) const GROUP: usize = 1 << 16;

/// A column of one row group.
pub(super) enum Column {
    Integer(Values<i64>),
    Double(Values<f64>),
    Text(Values<ByteArray>),
}

/// The values of a column, and which rows have one, if it may be absent.
pub(super) struct Values<T> {
    values: Vec<T>,
    present: Option<Vec<i16>>,
}

impl<T> Values<T> {
    /// A column with a value in each row.
    pub(super) fn required(values: impl IntoIterator<Item = T>) -> Self {
        Self {
            values: values.into_iter().collect(),
            present: None,
        }
    }

    /// A column that may lack values.
    pub(super) fn optional(values: impl IntoIterator<Item = Option<T>>) -> Self {
        let (mut found, mut present) = (Vec::new(), Vec::new());
        for value in values {
            present.push(i16::from(value.is_some()));
            found.extend(value);
        }
        Self {
            values: found,
            present: Some(present),
        }
    }
}

/// A Parquet file that is being written.
pub(super) struct Table<W: Write + Send>(SerializedFileWriter<W>);

impl<W: Write + Send> Table<W> {
    /// A file of this schema, in the language of Parquet.
    pub(super) fn new(writer: W, schema: &str) -> Result<Self, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .build();
        let schema = Arc::new(parse_message_type(schema)?);
        SerializedFileWriter::new(writer, schema, Arc::new(properties)).map(Self)
    }

    /// Writes rows, given as columns in the order of the schema.
    pub(super) fn group(&mut self, columns: &[Column]) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        for column in columns {
            match column {
                Column::Integer(values) => write::<Int64Type, _>(&mut group, values)?,
                Column::Double(values) => write::<DoubleType, _>(&mut group, values)?,
                Column::Text(values) => write::<ByteArrayType, _>(&mut group, values)?,
            }
        }
        group.close()?;
        Ok(())
    }

    /// Ends the file.
    pub(super) fn finish(self) -> Result<(), ParquetError> {
        self.0.close()?;
        Ok(())
    }
}

fn write<D: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: &Values<D::T>,
) -> Result<(), ParquetError> {
    let mut writer = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("more columns than the schema has".to_owned()))?;
    writer
        .typed::<D>()
        .write_batch(&column.values, column.present.as_deref(), None)?;
    writer.close()
}
