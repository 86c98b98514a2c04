//! Documents and tokens as Parquet.

use std::ops::Range;

use assay_api::DocumentRow;
use parquet::data_type::ByteArray;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

use super::table::{Column, GROUP, Table, Values};
use super::{ArchiveError, Ledger, Zip, table_name};

const DOCUMENTS: &str = "
    message documents {
        required int64 index;
        required int64 tokens;
        required int64 scored_tokens;
        required int64 bytes;
        required int64 words;
        required double nll;
        required binary nll_exact (UTF8);
        optional binary group (UTF8);
    }";

const TOKENS: &str = "
    message tokens {
        required int64 document;
        required int64 index;
        required int64 id;
        required int64 start;
        required int64 end;
        optional double nll;
        optional int64 nll_exact;
    }";

/// Documents that the ledger is asked for at once.
const PAGE: u32 = 8192;
/// Windows that the ledger is asked for at once.
const SPANS: u32 = 64;
/// Units of the exact sums in a nat.
const UNITS: f64 = 4_294_967_296.0;

/// Writes the tables of every row of the result that has ended.
pub(super) fn write_all(zip: &mut Zip, ledger: &Ledger<'_>) -> Result<(), ArchiveError> {
    let job = ledger.job;
    let methods = job.method.as_slice();
    let rows = job.datasets.len() * methods.len();
    // Their pages are compressed already.
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for index in 0..rows {
        let row = u32::try_from(index).expect("a job has few rows");
        let documents = Documents::new(ledger, row);
        if documents.page(0, 1)?.is_empty() {
            continue;
        }
        let name = table_name(index, rows, &job.datasets[index / methods.len()]);
        zip.start_file(format!("documents/{name}.parquet"), stored)?;
        write_documents(zip, documents)?;
        if job.token_output {
            let is_joined = methods[index % methods.len()].convention.is_joined();
            zip.start_file(format!("tokens/{name}.parquet"), stored)?;
            write_tokens(zip, ledger, row, is_joined)?;
        }
    }
    Ok(())
}

fn write_documents(zip: &mut Zip, documents: Documents<'_>) -> Result<(), ArchiveError> {
    let mut table = Table::new(zip, DOCUMENTS)?;
    let mut rows = Vec::with_capacity(GROUP);
    for row in documents {
        rows.push(row?);
        if rows.len() == GROUP {
            table.group(&document_columns(&rows))?;
            rows.clear();
        }
    }
    if !rows.is_empty() {
        table.group(&document_columns(&rows))?;
    }
    Ok(table.finish()?)
}

fn document_columns(rows: &[DocumentRow]) -> [Column; 8] {
    let integers = |of: fn(&DocumentRow) -> u64| {
        Column::Integer(Values::required(rows.iter().map(|row| signed(of(row)))))
    };
    let text = |text: &String| ByteArray::from(text.as_str());
    [
        integers(|row| row.index),
        integers(|row| row.tokens),
        integers(|row| row.scored_tokens),
        integers(|row| row.bytes),
        integers(|row| row.words),
        Column::Double(Values::required(rows.iter().map(|row| row.nll))),
        Column::Text(Values::required(
            rows.iter().map(|row| text(&row.nll_exact)),
        )),
        Column::Text(Values::optional(
            rows.iter().map(|row| row.group.as_ref().map(text)),
        )),
    ]
}

/// A token and the document that owns it.
struct TokenLine {
    document: u64,
    index: u64,
    id: u32,
    bytes: Range<u32>,
    units: Option<i64>,
}

fn write_tokens(
    zip: &mut Zip,
    ledger: &Ledger<'_>,
    row: u32,
    is_joined: bool,
) -> Result<(), ArchiveError> {
    let mut table = Table::new(zip, TOKENS)?;
    let mut owners = Owners::new(Documents::new(ledger, row));
    let mut lines = Vec::with_capacity(GROUP);
    let mut after = None;
    loop {
        let spans = ledger.ask(ledger.store.token_spans(ledger.job.id, row, after, SPANS))?;
        let Some(last) = spans.last() else { break };
        after = Some((last.stream, last.first));
        for span in spans {
            for (token, place) in span.tokens.into_iter().zip(span.first..) {
                let (document, index) = if is_joined {
                    owners.of(place)?
                } else {
                    (u64::from(span.stream), place)
                };
                lines.push(TokenLine {
                    document,
                    index,
                    id: token.id,
                    bytes: token.bytes,
                    units: token.units,
                });
            }
        }
        if lines.len() >= GROUP {
            table.group(&token_columns(&lines))?;
            lines.clear();
        }
    }
    if !lines.is_empty() {
        table.group(&token_columns(&lines))?;
    }
    Ok(table.finish()?)
}

fn token_columns(lines: &[TokenLine]) -> [Column; 7] {
    let integers =
        |of: fn(&TokenLine) -> i64| Column::Integer(Values::required(lines.iter().map(of)));
    let nats = |units: i64| units as f64 / UNITS;
    [
        integers(|line| signed(line.document)),
        integers(|line| signed(line.index)),
        integers(|line| line.id.into()),
        integers(|line| line.bytes.start.into()),
        integers(|line| line.bytes.end.into()),
        Column::Double(Values::optional(
            lines.iter().map(|line| line.units.map(nats)),
        )),
        Column::Integer(Values::optional(lines.iter().map(|line| line.units))),
    ]
}

/// The ledger's counts come from signed integers.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The documents of a row in order, a page at a time.
struct Documents<'a> {
    ledger: &'a Ledger<'a>,
    row: u32,
    next: u64,
    page: std::vec::IntoIter<DocumentRow>,
}

impl<'a> Documents<'a> {
    fn new(ledger: &'a Ledger<'a>, row: u32) -> Self {
        Self {
            ledger,
            row,
            next: 0,
            page: Vec::new().into_iter(),
        }
    }

    fn page(&self, from: u64, limit: u32) -> Result<Vec<DocumentRow>, ArchiveError> {
        let Ledger { store, job, .. } = self.ledger;
        self.ledger
            .ask(store.documents(job.id, self.row, from, limit))
    }
}

impl Iterator for Documents<'_> {
    type Item = Result<DocumentRow, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 {
            match self.page(self.next, PAGE) {
                Ok(page) => self.page = page.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
        let document = self.page.next()?;
        self.next = document.index + 1;
        Some(Ok(document))
    }
}

/// Which document owns a token of the joined text. Asked for tokens in their order.
struct Owners<I> {
    documents: I,
    document: u64,
    /// Where it begins and ends in the joined text.
    tokens: Range<u64>,
}

impl<I: Iterator<Item = Result<DocumentRow, ArchiveError>>> Owners<I> {
    fn new(documents: I) -> Self {
        Self {
            documents,
            document: 0,
            tokens: 0..0,
        }
    }

    /// The document, and the token's index in it.
    fn of(&mut self, token: u64) -> Result<(u64, u64), ArchiveError> {
        while token >= self.tokens.end {
            let document = self.documents.next().ok_or_else(|| {
                ArchiveError::Ledger(format!("token {token}, which no document owns"))
            })??;
            self.document = document.index;
            self.tokens = self.tokens.end..self.tokens.end + document.tokens;
        }
        Ok((self.document, token - self.tokens.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(index: u64, tokens: u64) -> DocumentRow {
        DocumentRow {
            index,
            tokens,
            scored_tokens: tokens,
            bytes: 7,
            words: 2,
            nll: 1.5,
            nll_exact: "6442450944".to_owned(),
            group: (index % 2 == 1).then(|| "odd".to_owned()),
        }
    }

    #[test]
    fn joined_tokens_belong_to_the_document_they_lie_in() {
        let documents = [2, 0, 0, 3, 1].into_iter().zip(0..);
        let documents = documents.map(|(tokens, index)| Ok(document(index, tokens)));
        let mut owners = Owners::new(documents);
        let found: Vec<_> = (0..6).map(|token| owners.of(token).unwrap()).collect();
        assert_eq!(found, [(0, 0), (0, 1), (3, 0), (3, 1), (3, 2), (4, 0)]);
        assert!(owners.of(6).is_err());
    }

    #[test]
    fn tables_read_back() {
        use parquet::file::reader::{FileReader, SerializedFileReader};
        use parquet::record::RowAccessor;

        let mut bytes = Vec::new();
        let mut table = Table::new(&mut bytes, DOCUMENTS).unwrap();
        table
            .group(&document_columns(&[document(0, 4), document(1, 5)]))
            .unwrap();
        table.group(&document_columns(&[document(2, 6)])).unwrap();
        table.finish().unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let tokens: Vec<i64> = rows.iter().map(|row| row.get_long(1).unwrap()).collect();
        assert_eq!(tokens, [4, 5, 6]);
        assert_eq!(rows[1].get_string(7).unwrap(), "odd");
        assert!(rows[0].get_string(7).is_err());
        assert_eq!(rows[2].get_string(6).unwrap(), "6442450944");

        let line = |units| TokenLine {
            document: 1,
            index: 2,
            id: 3,
            bytes: 4..5,
            units,
        };
        let mut bytes = Vec::new();
        let mut table = Table::new(&mut bytes, TOKENS).unwrap();
        table
            .group(&token_columns(&[line(None), line(Some(3 << 31))]))
            .unwrap();
        table.finish().unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(rows[0].get_double(5).is_err());
        assert_eq!(rows[1].get_double(5).unwrap().to_bits(), 1.5_f64.to_bits());
        assert_eq!(rows[1].get_long(6).unwrap(), 3 << 31);
    }
}
