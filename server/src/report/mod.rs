//! The report of a job: one HTML file with all that a reader of its numbers should see. It has no
//! script and refers to nothing outside of itself, so it can be kept and sent around.
//!
//! It follows from what is stored, and is the same whenever it is made. Of the documents only counts
//! and the worst few are read, so that their number does not matter.

mod charts;
mod figures;
mod origin;
mod page;
mod request;
mod row;

use assay_api::{DocumentRow, GateResult, Job, JobResult};
use assay_store::{Histogram, ProjectStore};

use crate::comparisons;
use crate::error::ApiError;

/// Bins of a histogram.
const BINS: u32 = 40;
/// Documents of a row that are listed.
const WORST: u32 = 10;

/// What a report is made of.
pub(crate) struct Facts {
    job: Job,
    result: JobResult,
    gate: Option<GateResult>,
    /// In the order of the result's datasets.
    rows: Vec<RowFacts>,
}

/// What is read of the documents of a row.
struct RowFacts {
    histogram: Option<Histogram>,
    worst: Vec<DocumentRow>,
}

impl Facts {
    /// All of a job that has ended, with this result.
    ///
    /// # Errors
    /// The ledger fails.
    pub(crate) async fn read(
        ledger: &ProjectStore,
        job: Job,
        result: JobResult,
    ) -> Result<Self, ApiError> {
        let mut rows = Vec::with_capacity(result.datasets.len());
        for row in 0..u32::try_from(result.datasets.len()).unwrap_or(u32::MAX) {
            rows.push(RowFacts {
                histogram: ledger.histogram(job.id, row, BINS).await?,
                worst: ledger.worst(job.id, row, WORST).await?,
            });
        }
        let gate = match job.gate {
            None => None,
            Some(_) => Some(comparisons::decide(ledger, job.clone()).await?),
        };
        Ok(Self {
            job,
            result,
            gate,
            rows,
        })
    }

    /// The file.
    pub(crate) fn render(&self) -> String {
        page::render(self).into_string()
    }
}
