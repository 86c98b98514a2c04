//! How the documents of a row are spread.

use assay_api::JobId;
use assay_scoring::UNITS_PER_NAT;

use crate::project::is_seen;
use crate::rows::{count, int};
use crate::{Store, StoreError};

/// Counts of documents by their mean NLL, in bins of equal width.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Where the first bin begins, in nats per token.
    pub from: f64,
    /// Where the last one ends.
    pub to: f64,
    /// Documents of each bin. What lies below the first or above the last is counted there.
    pub bins: Vec<u64>,
    /// The lowest mean NLL of a document.
    pub lowest: f64,
    /// The highest one.
    pub highest: f64,
}

impl Store {
    /// The mean NLL of the documents of a row that has ended, in `bins` bins from the 0.5 % to the
    /// 99.5 % quantile, so that single documents do not stretch it. None before, and if no document
    /// has a counted token.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn histogram(
        &self,
        job: JobId,
        row: u32,
        bins: u32,
    ) -> Result<Option<Histogram>, StoreError> {
        let rows: Vec<(i32, i64, f64, f64, f64, f64)> = sqlx::query_as(concat!(
            "with means as materialized (
                 select u.nll::double precision / $4 / u.scored as mean
                 from document_chunks c
                 cross join lateral unnest(c.scored, c.nll) as u(scored, nll)
                 where c.job_id = $1 and c.dataset = $2 and c.scored is not null and u.scored > 0
                   and ",
            is_seen!("$1", "$5"),
            "), bounds as (
                 select percentile_disc(0.005) within group (order by mean) as low,
                        percentile_disc(0.995) within group (order by mean) as high,
                        min(mean) as lowest, max(mean) as highest
                 from means
             )
             select case when low < high
                         then least(greatest(width_bucket(mean, low, high, $3), 1), $3)
                         else 1 end as bin,
                    count(*), low, high, lowest, highest
             from means cross join bounds
             group by 1, low, high, lowest, highest
             order by 1",
        ))
        .bind(job)
        .bind(int(row)?)
        .bind(int(bins)?)
        .bind(UNITS_PER_NAT)
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        let Some(&(_, _, from, to, lowest, highest)) = rows.first() else {
            return Ok(None);
        };
        let mut counts = vec![0; bins as usize];
        for (bin, documents, ..) in rows {
            let at = usize::try_from(bin - 1).ok();
            let bin = at.and_then(|at| counts.get_mut(at));
            *bin.ok_or_else(|| StoreError::Unexpected("a bin beyond the last".to_owned()))? =
                count(documents)?;
        }
        Ok(Some(Histogram {
            from,
            to,
            bins: counts,
            lowest,
            highest,
        }))
    }
}
