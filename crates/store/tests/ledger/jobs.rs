//! Jobs: creation, idempotency, listing, cancellation.

use std::sync::Arc;

use assay_api::{JobRequest, JobState, ModelRef};
use assay_store::{Cancellation, CommitOutcome, Creation, JobFilter};
use tokio::task::JoinSet;

use crate::support::{Ledger, compute, request};

#[tokio::test]
async fn a_key_makes_one_job_however_often_it_comes() {
    let ledger = Ledger::fresh().await;
    let first = request(&["a", "b"]);
    let Creation::Created(job) = ledger.create(&first, Some("k")).await else {
        panic!()
    };
    assert_eq!(job.state, JobState::Queued);
    let Creation::Existing(again) = ledger.create(&first, Some("k")).await else {
        panic!()
    };
    assert_eq!(again.id, job.id);
    let Creation::Conflict(id) = ledger.create(&request(&["c"]), Some("k")).await else {
        panic!()
    };
    assert_eq!(id, job.id);
    assert!(matches!(
        ledger.create(&first, None).await,
        Creation::Created(_)
    ));
    assert!(matches!(
        ledger.create(&first, None).await,
        Creation::Created(_)
    ));
}

#[tokio::test]
async fn a_key_makes_one_job_when_it_comes_many_times_at_once() {
    let ledger = Arc::new(Ledger::fresh().await);
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move { ledger.create(&request(&["a"]), Some("k")).await });
    }
    let mut made = (0, 0);
    while let Some(creation) = calls.join_next().await {
        match creation.unwrap() {
            Creation::Created(_) => made.0 += 1,
            Creation::Existing(_) => made.1 += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(made, (1, 7));
    assert_eq!(
        ledger
            .store
            .jobs(&JobFilter::default(), None, 10)
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn lists_page_by_age_and_filter() {
    let ledger = Ledger::fresh().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(ledger.job(&["a"]).await);
    }
    ids.reverse();
    ledger.store.cancel_job(ids[1]).await.unwrap();
    let all = JobFilter::default();
    let first = ledger.store.jobs(&all, None, 2).await.unwrap();
    assert_eq!(first.iter().map(|j| j.id).collect::<Vec<_>>(), ids[..2]);
    let rest = ledger.store.jobs(&all, Some(ids[1]), 10).await.unwrap();
    assert_eq!(rest.iter().map(|j| j.id).collect::<Vec<_>>(), ids[2..]);

    let cancelled = JobFilter {
        states: vec![JobState::Cancelled],
        ..JobFilter::default()
    };
    let found = ledger.store.jobs(&cancelled, None, 10).await.unwrap();
    assert_eq!(found.iter().map(|j| j.id).collect::<Vec<_>>(), [ids[1]]);
    for (value, count) in [("ledger", 5), ("other", 0)] {
        let tagged = JobFilter {
            tag: Some(("suite".into(), value.into())),
            ..JobFilter::default()
        };
        assert_eq!(
            ledger.store.jobs(&tagged, None, 10).await.unwrap().len(),
            count
        );
    }
}

#[tokio::test]
async fn jobs_are_found_by_text_and_by_several_states() {
    let ledger = Ledger::fresh().await;
    let mut ids = Vec::new();
    for (name, model, adapter, tag) in [
        (Some("Nightly 50%"), "llama/base", None, "Main"),
        (None, "llama/tuned_a", Some("adapters/Poet"), "dev"),
        (Some("a\\b"), "qwen", None, "dev"),
    ] {
        let request = JobRequest {
            name: name.map(str::to_owned),
            model: ModelRef {
                path: model.to_owned(),
                adapter: adapter.map(str::to_owned),
            },
            tags: [("branch".to_owned(), tag.to_owned())].into(),
            ..request(&["a"])
        };
        ids.push(ledger.job_of(&request).await);
    }
    let id = ids[2].to_string();
    for (text, expected) in [
        ("nightly", &[0][..]),
        ("LLAMA", &[1, 0]),
        ("poet", &[1]),
        ("branch:main", &[0]),
        ("dev", &[2, 1]),
        // What means something elsewhere stands for itself.
        ("50%", &[0]),
        ("5%", &[]),
        ("tuned_a", &[1]),
        ("tuned.a", &[]),
        ("\\", &[2]),
        (&id[10..], &[2]),
        // The quotes of JSON are no part of a tag.
        ("\"", &[]),
    ] {
        let filter = JobFilter {
            text: Some(text.to_owned()),
            ..JobFilter::default()
        };
        let found = ledger.store.jobs(&filter, None, 10).await.unwrap();
        let found: Vec<_> = found.iter().map(|job| job.id).collect();
        let expected: Vec<_> = expected.iter().map(|&index: &usize| ids[index]).collect();
        assert_eq!(found, expected, "{text}");
    }

    ledger.store.cancel_job(ids[1]).await.unwrap();
    let states = |states: &[JobState]| JobFilter {
        states: states.to_vec(),
        text: Some("llama".to_owned()),
        ..JobFilter::default()
    };
    for (filter, count) in [
        (states(&[JobState::Queued, JobState::Cancelled]), 2),
        (states(&[JobState::Cancelled, JobState::Failed]), 1),
        (states(&[JobState::Failed, JobState::Running]), 0),
    ] {
        let found = ledger.store.jobs(&filter, None, 10).await.unwrap();
        assert_eq!(found.len(), count, "{filter:?}");
    }
}

#[tokio::test]
async fn a_cancelled_job_drops_what_its_workers_bring() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.planned(worker, &[20, 9]).await;
    let (fence, shard) = ledger.claim_shard(worker).await;

    assert!(matches!(
        ledger.store.cancel_job(job).await.unwrap(),
        Cancellation::Cancelled(_)
    ));
    let live = ledger
        .store
        .renew(worker, &[(fence, None)], crate::support::LEASE, None)
        .await
        .unwrap()
        .live;
    assert!(live.is_empty(), "the worker must learn that it has to stop");
    let outcome = ledger.commit(worker, fence, &compute(&shard)).await;
    assert_eq!(outcome, CommitOutcome::Late);
    assert!(
        ledger.claim(worker).await.is_none(),
        "nothing of it is given out again"
    );

    let state = ledger.state(job).await;
    assert_eq!(
        (state.state, state.progress.scored_tokens),
        (JobState::Cancelled, 0)
    );
    assert!(state.finished_at.is_some());
    assert!(matches!(
        ledger.store.cancel_job(job).await.unwrap(),
        Cancellation::AlreadyEnded(_)
    ));
    let missing = ledger.store.cancel_job(uuid::Uuid::now_v7()).await.unwrap();
    assert!(matches!(missing, Cancellation::NotFound));
}

#[tokio::test]
async fn the_ledger_knows_whether_it_is_migrated() {
    let database = assay_testkit::TestDatabase::fresh().await;
    let store = assay_store::Store::connect(database.url(), 2)
        .await
        .unwrap();
    let error = store.ready().await.unwrap_err();
    assert!(
        error.to_string().contains("assay-server migrate"),
        "{error}"
    );
    let (one, two) = tokio::join!(store.migrate(), store.migrate());
    one.unwrap();
    two.unwrap();
    store.ready().await.unwrap();
}
