//! A worker whose way to the database falls silent in the middle of a transaction: nobody tells
//! PostgreSQL, which goes on holding the locks of a worker that is not there.

use std::time::Duration;

use assay_api::WorkerState;
use assay_testkit::{LIMIT, eventually};
use tokio::time::Instant;

use crate::ledger::counted_once;
use crate::long_job::{job, roots, sums};
use crate::service::Service;

/// What a commit sends while it holds the locks of the job and of the attempt.
const IN_A_COMMIT: &str = "set outcome = 'committed'";
/// The others wait for so long at most, on a busy machine; by TCP alone it would be two hours.
const LONGEST_WAIT: Duration = Duration::from_secs(100);
const WELL: usize = 0;
const SILENT: usize = 1;

/// Waits until a session holds locks and does nothing.
async fn idle_in_transaction(service: &Service) {
    let mut ledger = service.ledger().await;
    eventually("a session that holds locks", LIMIT, async || {
        let idle: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity
             where datname = current_database() and state = 'idle in transaction')",
        )
        .fetch_one(&mut ledger)
        .await
        .unwrap();
        idle.then_some(())
    })
    .await;
}

#[tokio::test]
async fn silent_in_the_middle_of_a_commit() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let undisturbed = service.client.submit(&job()).await;
    service.client.succeeded(undisturbed).await;

    let proxy = service.add_worker_behind_proxy("cpu:1").await;
    let before = service.row_of(SILENT).await;
    proxy.silence_after(IN_A_COMMIT);
    let id = service.client.submit(&job()).await;
    eventually("the silence", LIMIT, async || {
        proxy.is_silent().then_some(())
    })
    .await;
    let silent = Instant::now();
    idle_in_transaction(&service).await;

    // The other worker does the rest, once it gets the lock.
    service.client.succeeded(id).await;
    let waited = silent.elapsed();
    println!("ended {:.1} s after the silence", waited.as_secs_f64());
    assert!(waited < LONGEST_WAIT, "{waited:?}");
    assert!(proxy.is_silent());
    assert_eq!(sums(&service, id).await, sums(&service, undisturbed).await);
    let in_vain = counted_once(&mut service.ledger().await, id).await;
    assert!(in_vain > 0, "what it was committing at least");
    assert_eq!(service.row_of(WELL).await.late_commits, 0);

    // What it was committing when it fell silent was not counted, and is refused when it tries
    // again.
    proxy.heal();
    let row = service
        .row_becomes(SILENT, "to live and to have been late", |row| {
            row.state == WorkerState::Live && row.late_commits > 0
        })
        .await;
    assert_eq!(row.id, before.id, "it was not started anew");
    service.finish().await;
}
