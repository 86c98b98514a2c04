//! Answers of `GET /jobs/{id}/partial`, kept for a while: whatever is asked, and by how many, the
//! ledger reads the sums of a job once in some seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use assay_api::{JobId, JobState, PartialResult};
use assay_store::{ProjectStore, StoreError};

/// Shortest time between two readings of a job that has not ended.
const PAUSE: Duration = Duration::from_secs(2);
/// A reading is repeated after this many times what it took, at the earliest.
const SHARE: u32 = 20;
/// Jobs that are remembered.
const JOBS: usize = 64;

/// A job's answer, held while it is read anew, so that all who ask then wait for one reading.
type Slot = Arc<tokio::sync::Mutex<Option<Kept>>>;

/// The answers of the jobs that were asked for last.
#[derive(Clone, Default)]
pub(crate) struct Partials(Arc<Mutex<HashMap<JobId, Slot>>>);

struct Kept {
    result: Arc<PartialResult>,
    read_at: Instant,
    took: Duration,
}

impl Kept {
    /// Whether it still holds for a job in this state, `age` after it was read. Of a job that has
    /// ended nothing changes any more.
    fn holds(&self, state: JobState, age: Duration) -> bool {
        self.result.state == state && (state.is_final() || age < PAUSE.max(self.took * SHARE))
    }
}

impl Partials {
    /// What is counted so far of a job that the caller sees, and that is in this state. None if it is
    /// gone.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn get(
        &self,
        ledger: &ProjectStore,
        job: JobId,
        state: JobState,
    ) -> Result<Option<Arc<PartialResult>>, StoreError> {
        let slot = self.slot(job);
        let mut kept = slot.lock().await;
        if let Some(kept) = &*kept
            && kept.holds(state, kept.read_at.elapsed())
        {
            return Ok(Some(Arc::clone(&kept.result)));
        }
        let begun = Instant::now();
        let Some(result) = ledger.partial(job).await? else {
            return Ok(None);
        };
        let result = Arc::new(result);
        *kept = Some(Kept {
            result: Arc::clone(&result),
            read_at: Instant::now(),
            took: begun.elapsed(),
        });
        Ok(Some(result))
    }

    fn slot(&self, job: JobId) -> Slot {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= JOBS && !slots.contains_key(&job) {
            // Those that nobody reads at the moment; all of them, as it costs one reading each.
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(slots.entry(job).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(state: JobState, took: Duration) -> Kept {
        Kept {
            result: Arc::new(PartialResult {
                job_id: JobId::nil(),
                state,
                complete: false,
                at: std::time::SystemTime::UNIX_EPOCH.into(),
                datasets: Vec::new(),
            }),
            read_at: Instant::now(),
            took,
        }
    }

    #[test]
    fn an_answer_holds_for_two_seconds_or_twenty_times_what_it_took() {
        let running = kept(JobState::Running, Duration::from_millis(1));
        assert!(running.holds(JobState::Running, Duration::from_millis(1_999)));
        assert!(!running.holds(JobState::Running, PAUSE));
        let slow = kept(JobState::Running, Duration::from_millis(500));
        assert!(slow.holds(JobState::Running, Duration::from_millis(9_999)));
        assert!(!slow.holds(JobState::Running, Duration::from_secs(10)));
    }

    #[test]
    fn an_answer_of_another_state_does_not_hold_and_the_last_one_does_for_good() {
        let running = kept(JobState::Running, Duration::ZERO);
        assert!(!running.holds(JobState::Succeeded, Duration::ZERO));
        let ended = kept(JobState::Succeeded, Duration::ZERO);
        assert!(ended.holds(JobState::Succeeded, Duration::from_hours(24)));
    }

    #[test]
    fn few_jobs_are_remembered() {
        let partials = Partials::default();
        let held = partials.slot(JobId::from_u128(0));
        for job in 1..=200 {
            partials.slot(JobId::from_u128(job));
        }
        assert!(partials.0.lock().unwrap().len() <= JOBS);
        // Who waits for a reading is not forgotten.
        assert!(Arc::ptr_eq(&held, &partials.slot(JobId::from_u128(0))));
    }
}
