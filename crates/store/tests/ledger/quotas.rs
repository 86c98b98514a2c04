//! Quotas hold also for those who come at once.

use assay_api::{ErrorCode, JobState};
use assay_store::{Creation, Exceeded, ProjectChanges, Quota};
use tokio::task::JoinSet;

use crate::projects::{post, posted};
use crate::support::{Ledger, new_plan, request};

fn jobs(limit: u32) -> ProjectChanges {
    ProjectChanges {
        max_unfinished_jobs: Some(Some(limit)),
        ..ProjectChanges::default()
    }
}

fn tokens(limit: u64) -> ProjectChanges {
    ProjectChanges {
        tokens_per_day: Some(Some(limit)),
        ..ProjectChanges::default()
    }
}

#[tokio::test]
async fn posts_that_come_at_once_do_not_pass_the_quota() {
    let ledger = Ledger::fresh().await;
    let project = ledger.project("p").await;
    ledger.store.set_project("p", &jobs(3)).await.unwrap();
    let mut posts = JoinSet::new();
    for number in 0..16 {
        let project = project.clone();
        posts.spawn(async move {
            // Some of them with a key, which waits for others of the same key.
            let key = (number % 2 == 0).then(|| format!("key {}", number % 8));
            post(&project, &request(&["a"]), key.as_deref()).await
        });
    }
    let mut created = Vec::new();
    for creation in posts.join_all().await {
        match creation {
            Creation::Created(job) => created.push(job.id),
            Creation::Exceeded(exceeded) => {
                let (quota, used) = (exceeded.quota, exceeded.used);
                assert_eq!((quota, used), (Quota::UnfinishedJobs, 3));
                assert_eq!((exceeded.limit, exceeded.frees_at), (3, None));
            }
            Creation::Existing(_) => (),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(created.len(), 3);
    // One that has ended makes room for one.
    project.cancel_job(created[0]).await.unwrap();
    posted(&project).await;
    let refused = post(&project, &request(&["a"]), None).await;
    assert!(matches!(refused, Creation::Exceeded(_)), "{refused:?}");
    // Another project has a count of its own.
    posted(&ledger.project("q").await).await;
}

#[tokio::test]
async fn a_plan_that_passes_the_quota_of_tokens_fails_its_job() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let project = ledger.project("p").await;
    ledger.store.set_project("p", &tokens(10)).await.unwrap();
    let plan = async |lengths: &[u64]| {
        let job = posted(&project).await;
        let claim = ledger.claim(worker).await.unwrap();
        let plan = new_plan(&[lengths]);
        let committed = ledger.store.commit_plan(worker, claim.fence, &plan).await;
        (job, committed.unwrap())
    };
    let (_, planned) = plan(&[4, 2]).await;
    assert!(planned);
    ledger.run_all(worker).await;
    // Numbers that are taken over cost nothing.
    let (taken, planned) = plan(&[4, 2]).await;
    assert!(planned);
    let taken = project.job(taken).await.unwrap().unwrap();
    assert_eq!(taken.state, JobState::Succeeded);

    for (lengths, says) in [(&[5][..], "it frees at"), (&[11], "post it in parts")] {
        let (refused, planned) = plan(lengths).await;
        assert!(!planned);
        let refused = project.job(refused).await.unwrap().unwrap();
        assert_eq!(refused.state, JobState::Failed);
        let error = refused.error.unwrap();
        assert_eq!(error.code, ErrorCode::QuotaExceeded);
        assert!(error.detail.contains(says), "{}", error.detail);
    }
    let (_, planned) = plan(&[4]).await;
    assert!(planned, "that is just what was left");
    let refused = post(&project, &request(&["a"]), None).await;
    let Creation::Exceeded(Exceeded {
        quota,
        limit,
        used,
        frees_at: Some(_),
        ..
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!((quota, limit, used), (Quota::TokensPerDay, 10, 10));
}
