//! The events of a job, as the schema's triggers wrote them.

use assay_api::{JobId, JobState};
use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::project::is_seen;
use crate::rows::{index_of, int, parse};
use crate::{Store, StoreError};

/// An event of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoredEvent {
    /// Counts the events of the job from 1, in the order in which they were committed.
    pub number: u32,
    /// When.
    pub at: DateTime<Utc>,
    /// What.
    pub what: Happened,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The job is in this state from then on.
    State(JobState),
    /// The row of this index was finished.
    Finished(u32),
}

#[derive(FromRow)]
struct EventRow {
    number: i32,
    at: DateTime<Utc>,
    state: Option<String>,
    dataset: Option<i32>,
}

impl Store {
    /// The events of a job after that of number `seen`, 0 for all, in their order.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn events(&self, job: JobId, seen: u32) -> Result<Vec<StoredEvent>, StoreError> {
        let rows: Vec<EventRow> = sqlx::query_as(concat!(
            "select number, at, state::text as state, dataset from job_events
             where job_id = $1 and number > $2 and ",
            is_seen!("$1", "$3"),
            " order by number",
        ))
        .bind(job)
        .bind(int(seen)?)
        .bind(self.project())
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(EventRow::into_event).collect()
    }
}

impl EventRow {
    fn into_event(self) -> Result<StoredEvent, StoreError> {
        let what = match (self.state, self.dataset) {
            (Some(state), _) => Happened::State(parse(state)?),
            (None, Some(dataset)) => Happened::Finished(index_of(dataset)?),
            (None, None) => {
                let number = self.number;
                return Err(StoreError::Unexpected(format!("event {number} of nothing")));
            }
        };
        Ok(StoredEvent {
            number: index_of(self.number)?,
            at: self.at,
            what,
        })
    }
}
