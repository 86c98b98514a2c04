//! What an adaptive job was computed in, and what that changed.

use assay_api::{Dtype, JobId, Numerics, Precision, PrecisionEffect, PrecisionShare};
use sqlx::{FromRow, PgConnection};

use crate::StoreError;
use crate::rows::{count, parse};

#[derive(FromRow)]
struct ShareRow {
    device_kind: String,
    dtype: String,
    tokens: i64,
}

/// Over all attempts that scored a part of a shard in both dtypes, late ones included; but one for
/// each shard and kind, whose differences are equal to the bit, and none of a worker found wrong.
#[derive(FromRow)]
struct ComparedRow {
    tokens: i64,
    difference: f64,
    squares: f64,
}

/// None if the job's numerics are uniform.
pub(crate) async fn read(
    tx: &mut PgConnection,
    job: JobId,
    numerics: Numerics,
    dtype: Dtype,
) -> Result<Option<Precision>, StoreError> {
    if numerics == Numerics::Uniform {
        return Ok(None);
    }
    let rows: Vec<ShareRow> = sqlx::query_as(
        "select a.device_kind, coalesce(a.dtype, $2) as dtype, sum(s.scored_tokens)::bigint as tokens
         from shards s join attempts a on a.fence = s.fence
         where s.job_id = $1
         group by 1, 2
         order by tokens desc, 1, 2",
    )
    .bind(job)
    .bind(dtype.as_str())
    .fetch_all(&mut *tx)
    .await?;
    let all: i64 = rows.iter().map(|row| row.tokens).sum();
    let shares = rows
        .into_iter()
        .map(|row| {
            Ok(PrecisionShare {
                device_kind: row.device_kind,
                dtype: parse(row.dtype)?,
                tokens: count(row.tokens)?,
                share: row.tokens as f64 / all as f64,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let reused: i64 = sqlx::query_scalar(
        "select coalesce(sum(scored_tokens), 0)::bigint from datasets
         where job_id = $1 and reused_from is not null",
    )
    .bind(job)
    .fetch_one(&mut *tx)
    .await?;
    // Numbers of earlier jobs are in the job's dtype.
    let others = shares.iter().filter(|share| share.dtype != dtype);
    let others: u64 = others.map(|share| share.tokens).sum();
    let share = others as f64 / (all + reused) as f64;
    let compared: ComparedRow = sqlx::query_as(
        "select coalesce(sum(compared_tokens), 0)::bigint as tokens,
                coalesce(sum(difference), 0) as difference,
                coalesce(sum(difference_squares), 0) as squares
         from (
             select distinct on (a.shard, a.device_kind, a.dtype)
                    compared_tokens, difference, difference_squares
             from attempts a join workers w on w.id = a.worker_id
             where a.job_id = $1 and a.compared_tokens is not null
               and w.out_of_service_at is null
             order by a.shard, a.device_kind, a.dtype, a.fence
         ) compared",
    )
    .bind(job)
    .fetch_one(tx)
    .await?;
    let effect = PrecisionEffect::of(
        count(compared.tokens)?,
        compared.difference,
        compared.squares,
        share,
    );
    Ok(Some(Precision {
        shares,
        effect: effect.filter(|_| others > 0),
    }))
}
