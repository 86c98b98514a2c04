//! Calls to the ledger that outlive a restart of the database.

use std::time::{Duration, Instant};

use assay_store::StoreError;
use tokio_util::sync::CancellationToken;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for an answer: a connection whose other end vanished without a word never gives
/// one. Long enough to finish a dataset of millions of documents.
const ANSWER: Duration = Duration::from_mins(2);
/// How long a stopping worker still tries to give its claims back.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// Calls `call` until it succeeds or fails for good. Every write of the store may be repeated
/// under the same fence, so a lost answer does no harm. While the worker stops it tries for 10
/// seconds more.
///
/// # Errors
/// The last error of the call.
pub(crate) async fn retry<T, F>(
    stopping: &CancellationToken,
    mut call: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut wait = FIRST_WAIT;
    let mut give_up_at = None;
    loop {
        let answer = tokio::time::timeout(ANSWER, call()).await;
        let error = match answer.unwrap_or(Err(StoreError::NoAnswer(ANSWER))) {
            Err(error) if error.is_transient() => error,
            answer => return answer,
        };
        if stopping.is_cancelled() {
            let deadline = *give_up_at.get_or_insert_with(|| Instant::now() + GRACE);
            if Instant::now() > deadline {
                return Err(error);
            }
        }
        let pause = jittered(wait);
        tracing::warn!(%error, wait_ms = pause.as_millis(), "the database does not answer; trying again");
        tokio::time::sleep(pause).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Workers that lost the database together must not come back to it together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ANSWER: StoreError = StoreError::NoAnswer(ANSWER);

    fn unexpected() -> StoreError {
        StoreError::Unexpected("three".to_owned())
    }

    #[tokio::test]
    async fn only_what_may_pass_is_tried_again() {
        let stopping = CancellationToken::new();
        let mut answers = vec![Err(unexpected()), Err(NO_ANSWER)];
        let answer: Result<(), _> =
            retry(&stopping, || std::future::ready(answers.pop().unwrap())).await;
        assert!(matches!(answer, Err(StoreError::Unexpected(_))));
        assert!(answers.is_empty());

        stopping.cancel();
        let mut answers = vec![Ok(1), Err(NO_ANSWER)];
        let answer = retry(&stopping, || std::future::ready(answers.pop().unwrap())).await;
        assert_eq!(answer.unwrap(), 1, "a stopping worker tries for a while");
    }

    #[test]
    fn pauses_differ_within_bounds() {
        let pauses: Vec<_> = (0..100).map(|_| jittered(LONGEST_WAIT)).collect();
        let bounds = LONGEST_WAIT / 2..=LONGEST_WAIT;
        assert!(
            pauses.iter().all(|pause| bounds.contains(pause)),
            "{pauses:?}"
        );
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}
