//! Blocking work that takes long: bounded in number, and stopped when nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use crate::error::ApiError;

/// Pieces of work at a time. Each reads files or the ledger for minutes and may use all cores.
const AT_A_TIME: usize = 2;

/// Runs long work on threads of its own.
#[derive(Clone, Debug)]
pub(crate) struct Heavy(Arc<Semaphore>);

impl Default for Heavy {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

impl Heavy {
    /// Waits for a turn, runs `work` and answers what it made. The flag is set once the caller of
    /// this is dropped, be it that its client is gone or that it took too long; `work` looks at it
    /// now and then and gives up. Its turn ends when it has.
    ///
    /// # Errors
    /// Those of `work`, or it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&AtomicBool) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = Arc::clone(&self.0)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let flag = Arc::new(AtomicBool::new(false));
        let _set = SetOnDrop(Arc::clone(&flag));
        tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&flag)
        })
        .await?
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn work_is_told_when_nobody_waits_for_it() {
        let (told, hears) = mpsc::channel();
        let heavy = Heavy::default();
        let (started, starts) = tokio::sync::oneshot::channel();
        let run = heavy.run(move |cancelled| {
            started.send(()).expect("the test waits");
            while !cancelled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            told.send(()).expect("the test waits");
            Ok(())
        });
        tokio::select! {
            _ = run => panic!("ended without being cancelled"),
            _ = starts => (),
        }
        tokio::task::spawn_blocking(move || hears.recv_timeout(Duration::from_mins(1)))
            .await
            .unwrap()
            .unwrap();
    }

    #[tokio::test]
    async fn no_more_runs_at_a_time_than_is_allowed() {
        let heavy = Heavy::default();
        let turns: Vec<_> = (0..AT_A_TIME)
            .map(|_| heavy.0.try_acquire().unwrap())
            .collect();
        let waits = heavy.run(|_| Ok(7));
        tokio::pin!(waits);
        assert!(
            timeout(Duration::from_millis(10), &mut waits)
                .await
                .is_err()
        );
        drop(turns);
        assert_eq!(waits.await.ok(), Some(7));
    }
}
