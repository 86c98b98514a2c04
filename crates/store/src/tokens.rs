//! The number of each token, of jobs that keep them: a row of `token_spans` for each window.

use std::ops::Range;

use assay_api::{JobId, Method, TokenRow};
use assay_scoring::{ClusterSum, ExactSum, MicroBatch};
use sqlx::{FromRow, PgConnection};

use crate::project::is_seen;
use crate::rows::{bigint, count, int, json};
use crate::{CHUNK, Store, StoreError};

/// Spans written by one statement: a few MB.
const BATCH: usize = 64;
/// Spans read by one statement.
const PAGE: usize = 16;
/// The units of a token that does not count; no sum of one token reaches them.
const NOT_COUNTED: i64 = i64::MIN;

/// The tokens that one window predicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSpan {
    /// What the window was cut from: the document, or 0 where documents are joined.
    pub stream: u32,
    /// Index in the stream of the first token.
    pub first: u64,
    /// The tokens in order, those that do not count included.
    pub tokens: Vec<SpanToken>,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanToken {
    /// Its id.
    pub id: u32,
    /// Its bytes in the text of the document that owns it.
    pub bytes: Range<u32>,
    /// Its NLL in units of 2^-32 nat; none if it does not count.
    pub units: Option<i64>,
}

#[derive(FromRow)]
struct SpanRow {
    stream: i64,
    first: i64,
    ids: Vec<u8>,
    starts: Vec<u8>,
    ends: Vec<u8>,
    units: Vec<u8>,
}

impl Store {
    /// The tokens of a document from index `from` on that some window predicts, `limit` at most.
    /// Empty until the row has ended, and for a job that keeps no tokens.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn tokens(
        &self,
        job: JobId,
        row: u32,
        document: u64,
        from: u64,
        limit: u32,
    ) -> Result<Vec<TokenRow>, StoreError> {
        let Some((stream, tokens)) = self.range_of(job, row, document).await? else {
            return Ok(Vec::new());
        };
        let limit = limit as usize;
        let mut rows = Vec::new();
        let mut next = tokens.start.saturating_add(from);
        while rows.len() < limit && next < tokens.end {
            let spans = self.spans_at(job, row, stream, next..tokens.end).await?;
            let more = spans.len() == PAGE;
            for span in spans {
                for (index, token) in (span.first..tokens.end).zip(span.tokens) {
                    if index >= next && rows.len() < limit {
                        rows.push(to_row(index - tokens.start, &token));
                        next = index + 1;
                    }
                }
            }
            if !more {
                break;
            }
        }
        Ok(rows)
    }

    /// The spans of a row that has ended, ordered by stream and first token, those behind `after`,
    /// `limit` at most. Empty before, and for a job that keeps no tokens.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn token_spans(
        &self,
        job: JobId,
        row: u32,
        after: Option<(u32, u64)>,
        limit: u32,
    ) -> Result<Vec<TokenSpan>, StoreError> {
        let (stream, first) = after.map_or((-1, 0), |(stream, first)| (stream.into(), first));
        let spans: Vec<SpanRow> = sqlx::query_as(concat!(
            "select t.stream, t.first, t.ids, t.starts, t.ends, t.units
             from datasets d join token_spans t on t.job_id = d.job_id and t.dataset = d.index
             where d.job_id = $1 and d.index = $2 and d.finished_at is not null
               and (t.stream, t.first) > ($3::bigint, $4::bigint) and ",
            is_seen!("$1", "$6"),
            " order by t.stream, t.first limit $5",
        ))
        .bind(job)
        .bind(int(row)?)
        .bind::<i64>(stream)
        .bind(i64::try_from(first).unwrap_or(i64::MAX))
        .bind(bigint(limit.into())?)
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        spans.iter().map(decode).collect()
    }

    /// Spans of a stream that hold tokens of `range`, the first [`PAGE`] of them; the very first
    /// may end before.
    async fn spans_at(
        &self,
        job: JobId,
        row: u32,
        stream: u64,
        range: Range<u64>,
    ) -> Result<Vec<TokenSpan>, StoreError> {
        let spans: Vec<SpanRow> = sqlx::query_as(
            "select stream, first, ids, starts, ends, units
             from token_spans
             where job_id = $1 and dataset = $2 and stream = $3
               and first >= coalesce((
                   select max(b.first) from token_spans b
                   where b.job_id = $1 and b.dataset = $2 and b.stream = $3 and b.first <= $4
               ), $4)
               and first < $5
             order by first limit $6",
        )
        .bind(job)
        .bind(int(row)?)
        .bind(bigint(stream)?)
        .bind(bigint(range.start)?)
        .bind(bigint(range.end)?)
        .bind(bigint(PAGE as u64)?)
        .fetch_all(&self.pool)
        .await?;
        spans.iter().map(decode).collect()
    }

    /// The stream of a document, and its tokens in it. None until the row has ended.
    async fn range_of(
        &self,
        job: JobId,
        row: u32,
        document: u64,
    ) -> Result<Option<(u64, Range<u64>)>, StoreError> {
        let (chunk, offset) = (document / CHUNK as u64, document % CHUNK as u64);
        let Ok(chunk) = i32::try_from(chunk) else {
            return Ok(None);
        };
        let found: Option<(serde_json::Value, Option<i64>)> = sqlx::query_as(concat!(
            "select d.method, c.tokens[$4 + 1]
             from datasets d join document_chunks c on c.job_id = d.job_id and c.dataset = d.index
             where d.job_id = $1 and d.index = $2 and c.chunk = $3 and d.finished_at is not null
               and ",
            is_seen!("$1", "$5"),
        ))
        .bind(job)
        .bind(int(row)?)
        .bind(chunk)
        .bind(int(offset)?)
        .bind(self.project())
        .fetch_optional(&self.pool)
        .await?;
        let Some((method, Some(tokens))) = found else {
            return Ok(None);
        };
        let tokens = count(tokens)?;
        let method: Method = json(method)?;
        if !method.convention.is_joined() {
            return Ok(Some((document, 0..tokens)));
        }
        // The documents lie one behind the other in the one stream.
        let before: i64 = sqlx::query_scalar(
            "select coalesce(sum(u.tokens), 0)::bigint
             from document_chunks c cross join lateral unnest(c.tokens)
                 with ordinality as u(tokens, n)
             where c.job_id = $1 and c.dataset = $2
               and (c.chunk < $3 or (c.chunk = $3 and u.n <= $4))",
        )
        .bind(job)
        .bind(int(row)?)
        .bind(chunk)
        .bind(int(offset)?)
        .fetch_one(&self.pool)
        .await?;
        let start = count(before)?;
        Ok(Some((0, start..start + tokens)))
    }
}

/// Why the spans cannot be those that the windows of a shard predict, with the sums that its
/// clusters have, if so.
pub(crate) fn disagreement(
    micro_batches: &[MicroBatch],
    sums: &[ClusterSum],
    spans: &[TokenSpan],
) -> Option<String> {
    let windows = micro_batches.iter().flat_map(|m| &m.0);
    let mut planned: Vec<(u32, u64, u64)> = windows
        .map(|window| (window.document, window.from, window.scored()))
        .collect();
    let mut given: Vec<(u32, u64, u64)> = spans
        .iter()
        .map(|span| (span.stream, span.first, span.tokens.len() as u64))
        .collect();
    planned.sort_unstable();
    given.sort_unstable();
    if planned != given {
        return Some("the tokens it brings are not those of its windows".to_owned());
    }
    let units = spans
        .iter()
        .flat_map(|span| &span.tokens)
        .filter_map(|t| t.units);
    let (mut nll, mut scored) = (ExactSum::default(), 0);
    for units in units {
        nll += ExactSum::from(units);
        scored += 1;
    }
    let mut summed = (ExactSum::default(), 0);
    for sum in sums {
        summed.0 += ExactSum::from(sum.units);
        summed.1 += sum.scored;
    }
    ((nll, scored) != summed).then(|| {
        format!(
            "its {scored} counted tokens have the sum {nll}, its clusters count {} with the sum {}",
            summed.1, summed.0
        )
    })
}

/// Writes the spans of the attempt that its shard has just been counted by.
pub(crate) async fn write(
    tx: &mut PgConnection,
    job: JobId,
    (dataset, shard, fence): (i32, i32, i64),
    spans: &[TokenSpan],
) -> Result<(), StoreError> {
    for spans in spans.chunks(BATCH) {
        let rows: Vec<SpanRow> = spans.iter().map(encode).collect::<Result<_, _>>()?;
        let column = |of: fn(&SpanRow) -> &[u8]| rows.iter().map(of).collect::<Vec<_>>();
        sqlx::query(
            "insert into token_spans
                 (job_id, dataset, shard, fence, stream, first, ids, starts, ends, units)
             select $1, $2, $3, $4, s.*
             from unnest($5::bigint[], $6::bigint[], $7::bytea[], $8::bytea[], $9::bytea[],
                         $10::bytea[]) as s",
        )
        .bind(job)
        .bind(dataset)
        .bind(shard)
        .bind(fence)
        .bind(rows.iter().map(|row| row.stream).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.first).collect::<Vec<_>>())
        .bind(column(|row| &row.ids))
        .bind(column(|row| &row.starts))
        .bind(column(|row| &row.ends))
        .bind(column(|row| &row.units))
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

fn encode(span: &TokenSpan) -> Result<SpanRow, StoreError> {
    let words = |of: fn(&SpanToken) -> u32| {
        let words = span.tokens.iter().map(of);
        words.flat_map(u32::to_le_bytes).collect()
    };
    let units = span.tokens.iter().map(|t| t.units.unwrap_or(NOT_COUNTED));
    Ok(SpanRow {
        stream: span.stream.into(),
        first: bigint(span.first)?,
        ids: words(|token| token.id),
        starts: words(|token| token.bytes.start),
        ends: words(|token| token.bytes.end),
        units: units.flat_map(i64::to_le_bytes).collect(),
    })
}

fn decode(row: &SpanRow) -> Result<TokenSpan, StoreError> {
    // The table's constraints keep the columns aligned.
    let (ids, starts, ends) = (words(&row.ids), words(&row.starts), words(&row.ends));
    let units = row.units.as_chunks().0;
    let tokens = ids.zip(starts.zip(ends)).zip(units);
    let stream = u32::try_from(row.stream);
    Ok(TokenSpan {
        stream: stream.map_err(|_| StoreError::Unexpected(format!("stream {}", row.stream)))?,
        first: count(row.first)?,
        tokens: tokens
            .map(|((id, (start, end)), units)| SpanToken {
                id,
                bytes: start..end,
                units: Some(i64::from_le_bytes(*units)).filter(|units| *units != NOT_COUNTED),
            })
            .collect(),
    })
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes)
}

fn to_row(index: u64, token: &SpanToken) -> TokenRow {
    let nll = token.units.map(ExactSum::from);
    TokenRow {
        index,
        id: token.id,
        start: token.bytes.start.into(),
        end: token.bytes.end.into(),
        nll: nll.map(ExactSum::nats),
        nll_exact: nll.map(|sum| sum.to_string()),
    }
}
