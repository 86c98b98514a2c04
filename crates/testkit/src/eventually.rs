//! The one way to wait.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a condition may take that should come true at once on an idle machine. Generous,
/// for a wait that succeeds ends early.
pub const LIMIT: Duration = Duration::from_mins(1);

const POLL: Duration = Duration::from_millis(20);

/// Waits until `probe` answers with a value, and returns it.
///
/// # Panics
/// When that takes longer than `limit`; `what` completes "waited for".
pub async fn eventually<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited for {what}: not within {limit:?}"
        );
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_value_of_the_first_success_is_returned() {
        let mut calls = 0;
        let value = eventually("the third call", LIMIT, async || {
            calls += 1;
            (calls == 3).then_some(calls)
        });
        assert_eq!(value.await, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "waited for a miracle")]
    async fn the_deadline_names_what_was_waited_for() {
        eventually("a miracle", Duration::ZERO, async || None::<()>).await;
    }
}
