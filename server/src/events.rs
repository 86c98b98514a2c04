//! Follows a job through the ledger.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use assay_api::{DatasetEvent, ErrorCode, JobEvent, JobId, JobState, StateEvent};
use assay_store::{Happened, ProjectStore, StoreError, StoredEvent};
use axum::http::HeaderValue;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::error::ApiError;

/// Between two looks into the ledger.
const LOOK: Duration = Duration::from_secs(1);

/// How far a client has seen a job: the `id` of an event. The number of the last event, and the
/// tokens of the last progress after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// 0 before the first event.
    pub(crate) number: u32,
    tokens: Option<u64>,
}

impl Mark {
    /// From the header `Last-Event-ID`, if there is one.
    ///
    /// # Errors
    /// It is none of ours.
    pub(crate) fn of(header: Option<&HeaderValue>) -> Result<Self, ApiError> {
        let Some(header) = header else {
            return Ok(Self::default());
        };
        let text = header.to_str().unwrap_or_default();
        Self::parse(text).ok_or_else(|| {
            ApiError::of_field(
                ErrorCode::InvalidRequest,
                "Last-Event-ID",
                format!("{text:?} is not the id of an event of this job; leave it out for all"),
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, tokens) = match text.split_once('.') {
            None => (text, None),
            Some((number, tokens)) => (number, Some(tokens.parse().ok()?)),
        };
        // The ledger's numbers are below 2^31.
        let number: i32 = number.parse().ok()?;
        let number = number.try_into().ok()?;
        Some(Self { number, tokens })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        self.tokens.map_or(Ok(()), |tokens| write!(f, ".{tokens}"))
    }
}

/// A client that follows a job.
pub(crate) struct Follower {
    store: ProjectStore,
    job: JobId,
    /// What it was sent last.
    seen: Mark,
    /// What is to be sent next.
    ready: VecDeque<(Mark, JobEvent)>,
    /// The last event of the job is sent, or ready.
    ended: bool,
    looks: Interval,
}

impl Follower {
    pub(crate) fn new(store: ProjectStore, job: JobId, seen: Mark) -> Self {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            store,
            job,
            seen,
            ready: VecDeque::new(),
            ended: false,
            looks,
        }
    }

    /// The next event, and the mark of who has seen it. None after the job's last, and where the
    /// ledger does not answer: the client comes again with its mark.
    pub(crate) async fn next(&mut self) -> Option<(Mark, JobEvent)> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                self.seen = next.0;
                return Some(next);
            }
            if self.ended {
                return None;
            }
            self.looks.tick().await;
            if let Err(error) = self.look().await {
                tracing::warn!(job = %self.job, %error, "cannot follow the job any further");
                return None;
            }
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        // The job first: the events that are read after it are never behind it.
        let Some(job) = self.store.job(self.job).await? else {
            self.ended = true;
            return Ok(());
        };
        let events = self.store.events(self.job, self.seen.number).await?;
        let is_row = |event: &StoredEvent| matches!(event.what, Happened::Finished(_));
        let result = if events.iter().any(is_row) {
            self.store.result(self.job).await?
        } else {
            None
        };
        if events.is_empty() {
            if job.state.is_final() {
                self.ended = true;
                return Ok(());
            }
            let tokens = Some(job.progress.scored_tokens);
            if job.progress.planned_tokens.is_some() && self.seen.tokens != tokens {
                let mark = Mark {
                    tokens,
                    ..self.seen
                };
                self.ready
                    .push_back((mark, JobEvent::Progress(job.progress)));
            }
            return Ok(());
        }
        for event in events {
            let mark = Mark {
                number: event.number,
                tokens: None,
            };
            let sent = match event.what {
                Happened::State(state) => {
                    self.ended |= state.is_final();
                    let mut error = None;
                    if state == JobState::Failed {
                        // Read after the event: of a job that has failed it is there.
                        error = self.store.job(self.job).await?.and_then(|job| job.error);
                    }
                    JobEvent::State(StateEvent {
                        state,
                        at: event.at,
                        error,
                    })
                }
                Happened::Finished(row) => {
                    let rows = result.as_ref().map(|result| &result.datasets);
                    let result = rows.and_then(|rows| rows.get(row as usize)).cloned();
                    let result = result.ok_or_else(|| {
                        StoreError::Unexpected(format!("row {row} of job {} vanished", self.job))
                    })?;
                    JobEvent::Dataset(Box::new(DatasetEvent {
                        at: event.at,
                        result,
                    }))
                }
            };
            self.ready.push_back((mark, sent));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_travel() {
        for (text, number, tokens) in [("1", 1, None), ("3.4096", 3, Some(4096)), ("0", 0, None)] {
            let mark = Mark::parse(text).unwrap();
            assert_eq!(mark, Mark { number, tokens });
            assert_eq!(mark.to_string(), text);
        }
        for text in ["", "a", "-1", "1.", "1.x", "4294967295", "1.2.3"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }
}
