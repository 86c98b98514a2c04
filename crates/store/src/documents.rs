//! The documents of a row, with their sums.

use assay_api::{DocumentRow, JobId};
use assay_scoring::ExactSum;
use sqlx::FromRow;

use crate::project::is_seen;
use crate::rows::{bigint, count, int, json};
use crate::{CHUNK, Store, StoreError};

#[derive(FromRow)]
struct ChunkRow {
    chunk: i32,
    tokens: Vec<i64>,
    bytes: Vec<i64>,
    words: Vec<i64>,
    groups: Option<Vec<i32>>,
    scored: Vec<i64>,
    nll: Vec<String>,
}

/// One document.
#[derive(FromRow)]
struct Columns {
    index: i64,
    tokens: i64,
    bytes: i64,
    words: i64,
    group: Option<i32>,
    scored: i64,
    nll: String,
}

impl Store {
    /// The documents `from ..` of a row that has ended, `limit` at most. Empty before.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn documents(
        &self,
        job: JobId,
        row: u32,
        from: u64,
        limit: u32,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        let size = CHUNK as u64;
        let end = from.saturating_add(limit.into());
        let chunks: Vec<ChunkRow> = sqlx::query_as(concat!(
            "select chunk, tokens, bytes, words, groups, scored, nll::text[] as nll
             from document_chunks
             where job_id = $1 and dataset = $2 and chunk between $3 and $4 and scored is not null
               and ",
            is_seen!("$1", "$5"),
            " order by chunk",
        ))
        .bind(job)
        .bind(int(row)?)
        .bind(i32::try_from(from / size).unwrap_or(i32::MAX))
        .bind(i32::try_from(end / size).unwrap_or(i32::MAX))
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        let names = self.group_names(job, row).await?;
        let mut rows = Vec::new();
        for chunk in chunks {
            let first = count(chunk.chunk)? * size;
            for (offset, nll) in chunk.nll.into_iter().enumerate() {
                let index = first + offset as u64;
                if index < from || index >= end {
                    continue;
                }
                let document = Columns {
                    index: bigint(index)?,
                    tokens: chunk.tokens[offset],
                    bytes: chunk.bytes[offset],
                    words: chunk.words[offset],
                    group: chunk.groups.as_ref().map(|groups| groups[offset]),
                    scored: chunk.scored[offset],
                    nll,
                };
                rows.push(to_document(&document, &names)?);
            }
        }
        Ok(rows)
    }

    /// The documents of a row that has ended with the highest mean NLL, highest first and then by
    /// index, `limit` at most. Documents without a counted token have none.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn worst(
        &self,
        job: JobId,
        row: u32,
        limit: u32,
    ) -> Result<Vec<DocumentRow>, StoreError> {
        // A quotient of integers has as many decimals as its dividend is given: 20 of them tell
        // apart any two means of documents with fewer than 10^10 tokens.
        let documents: Vec<Columns> = sqlx::query_as(concat!(
            r#"select c.chunk::bigint * $4 + u.n - 1 as index, u.tokens, u.bytes, u.words,
                      u."group", u.scored, u.nll::text as nll
               from document_chunks c
               cross join lateral unnest(c.tokens, c.bytes, c.words, c.groups, c.scored, c.nll)
                   with ordinality as u(tokens, bytes, words, "group", scored, nll, n)
               where c.job_id = $1 and c.dataset = $2 and c.scored is not null and u.scored > 0
                 and "#,
            is_seen!("$1", "$5"),
            " order by round(u.nll, 20) / u.scored desc, index
              limit $3",
        ))
        .bind(job)
        .bind(int(row)?)
        .bind(bigint(limit.into())?)
        .bind(bigint(CHUNK as u64)?)
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        let names = self.group_names(job, row).await?;
        documents
            .iter()
            .map(|document| to_document(document, &names))
            .collect()
    }

    /// The names of the groups of a row; none without groups.
    async fn group_names(&self, job: JobId, row: u32) -> Result<Vec<String>, StoreError> {
        let names: Option<Option<serde_json::Value>> =
            sqlx::query_scalar("select group_names from datasets where job_id = $1 and index = $2")
                .bind(job)
                .bind(int(row)?)
                .fetch_optional(&self.pool)
                .await?;
        names.flatten().map_or_else(|| Ok(Vec::new()), json)
    }
}

fn to_document(row: &Columns, group_names: &[String]) -> Result<DocumentRow, StoreError> {
    let sum: ExactSum = row
        .nll
        .parse()
        .map_err(|_| StoreError::Unexpected(format!("sum {:?}", row.nll)))?;
    let group = row.group.map(|group| {
        let name = usize::try_from(group).ok().and_then(|g| group_names.get(g));
        name.cloned()
            .ok_or_else(|| StoreError::Unexpected(format!("group {group}")))
    });
    Ok(DocumentRow {
        index: count(row.index)?,
        tokens: count(row.tokens)?,
        scored_tokens: count(row.scored)?,
        bytes: count(row.bytes)?,
        words: count(row.words)?,
        nll: sum.nats(),
        nll_exact: sum.to_string(),
        group: group.transpose()?,
    })
}
