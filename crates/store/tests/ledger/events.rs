//! What happens to a job is told once, in order, and by the schema.

use assay_api::{ErrorCode, JobId, JobState};
use assay_store::{AttemptFailure, Happened, StoredEvent};

use crate::support::{Ledger, compute, request};

async fn told(ledger: &Ledger, job: JobId) -> Vec<Happened> {
    let events = ledger.store.events(job, 0).await.unwrap();
    let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
    assert!(
        numbers
            .iter()
            .copied()
            .eq(1..=u32::try_from(events.len()).unwrap()),
        "{numbers:?}"
    );
    assert!(events.is_sorted_by_key(|event| event.at), "{events:?}");
    events.into_iter().map(|event| event.what).collect()
}

fn failure(is_final: bool) -> AttemptFailure {
    AttemptFailure {
        code: ErrorCode::ComputeFailed,
        detail: "made up".to_owned(),
        field: None,
        is_final,
        computed_tokens: 0,
    }
}

#[tokio::test]
async fn a_job_tells_each_change() {
    use Happened::{Finished, State};
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job(&["a", "b"]).await;
    assert_eq!(told(&ledger, job).await, [State(JobState::Queued)]);

    // A planning that is given back, and one that is not.
    let claim = ledger.claim(worker).await.unwrap();
    let released = ledger.store.release_attempt(worker, claim.fence, 0).await;
    released.unwrap();
    ledger.plan(worker, &[&[20, 20], &[20]]).await;
    ledger.run_all(worker).await;
    let states = [
        JobState::Queued,
        JobState::Planning,
        JobState::Queued,
        JobState::Planning,
        JobState::Running,
    ];
    let mut expected: Vec<_> = states.into_iter().map(State).collect();
    let events = told(&ledger, job).await;
    assert_eq!(events[..5], expected);
    // Which row ends first is the scheduler's affair.
    assert!(events[5..7].contains(&Finished(0)) && events[5..7].contains(&Finished(1)));
    assert_eq!(events[7..], [State(JobState::Succeeded)]);
    assert_eq!(ledger.store.events(job, 8).await.unwrap(), []);

    // The same again takes the numbers over: its rows end with its plan.
    let again = ledger.job(&["a", "b"]).await;
    ledger.plan(worker, &[&[20, 20], &[20]]).await;
    expected = vec![
        State(JobState::Queued),
        State(JobState::Planning),
        State(JobState::Running),
        Finished(0),
        Finished(1),
        State(JobState::Succeeded),
    ];
    assert_eq!(told(&ledger, again).await, expected);
}

#[tokio::test]
async fn ends_without_success_are_told() {
    use Happened::State;
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let cancelled = ledger.planned(worker, &[20, 20]).await;
    ledger.store.cancel_job(cancelled).await.unwrap();
    ledger.store.cancel_job(cancelled).await.unwrap();
    let failed = ledger.planned(worker, &[20, 20, 20]).await;
    let (fence, _) = ledger.claim_shard(worker).await;
    for _ in 0..2 {
        let store = &ledger.store;
        store
            .fail_attempt(worker, fence, &failure(true))
            .await
            .unwrap();
    }
    for (job, state) in [(cancelled, JobState::Cancelled), (failed, JobState::Failed)] {
        let events = told(&ledger, job).await;
        assert_eq!(events[2..], [State(JobState::Running), State(state)]);
    }
}

/// Somebody who reads on from the last number that was seen, while many write, has seen all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_reads_on_misses_nothing() {
    let ledger = Ledger::fresh().await;
    let planner = ledger.worker("planner").await;
    let names: Vec<String> = (0..12).map(|index| format!("d{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let job = ledger.job_of(&request(&names)).await;
    let lengths: Vec<Vec<u64>> = (0..12).map(|index| vec![8 + index, 9]).collect();
    let lengths: Vec<&[u64]> = lengths.iter().map(Vec::as_slice).collect();
    ledger.plan(planner, &lengths).await;

    let ended = |events: &[StoredEvent]| {
        let last = events.last();
        last.is_some_and(|event| event.what == Happened::State(JobState::Succeeded))
    };
    let reader = async {
        let mut seen: Vec<StoredEvent> = Vec::new();
        while !ended(&seen) {
            let number = seen.last().map_or(0, |event| event.number);
            seen.extend(ledger.store.events(job, number).await.unwrap());
        }
        seen
    };
    let worker = |name| {
        let ledger = &ledger;
        async move {
            let worker = ledger.worker(name).await;
            while let Some(claim) = ledger.claim(worker).await {
                if let assay_store::Work::Shard(shard) = claim.work {
                    ledger.commit(worker, claim.fence, &compute(&shard)).await;
                }
            }
        }
    };
    let (seen, ..) = tokio::join!(reader, worker("a"), worker("b"), worker("c"));
    assert_eq!(seen, ledger.store.events(job, 0).await.unwrap());
    let finished = seen
        .iter()
        .filter(|event| matches!(event.what, Happened::Finished(_)));
    assert_eq!(finished.count(), 12);
}
