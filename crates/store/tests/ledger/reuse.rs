//! Numbers of earlier jobs: taken where everything agrees, and only there.

use std::sync::Arc;

use assay_api::{Dtype, DtypeRequest, JobId, JobRequest, JobResult, JobState, Numerics, WorkerId};
use assay_store::{Claim, CommitOutcome, NewPlan, ShardOutcome, Work};
use sqlx::Executor;
use tokio::task::JoinSet;

use crate::support::{Ledger, claimant_of, compute, expected, new_plan, request};

const A: &[u64] = &[20, 0, 9, 1, 33, 5, 8];
const B: &[u64] = &[3, 4, 50];

async fn result(ledger: &Ledger, job: JobId) -> JobResult {
    ledger.store.result(job).await.unwrap().unwrap()
}

/// A job over one dataset, run to its end on a device of this kind.
async fn scored(ledger: &Ledger, worker: WorkerId, kind: &str, plan: &NewPlan) -> JobId {
    let job = ledger.job(&["a"]).await;
    let claimant = claimant_of(worker, kind);
    while let Some(claim) = ledger.claim_one(&claimant).await {
        let fence = claim.fence;
        match claim.work {
            Work::Plan(_) => {
                assert!(ledger.store.commit_plan(worker, fence, plan).await.unwrap());
            }
            Work::Shard(shard) => {
                let outcome = compute(&shard);
                let committed = ledger.commit(worker, fence, &outcome).await;
                assert_eq!(committed, CommitOutcome::Counted);
            }
        }
    }
    assert_eq!(ledger.state(job).await.state, JobState::Succeeded);
    job
}

/// The source of the numbers of a further job over the same dataset.
async fn source(ledger: &Ledger, worker: WorkerId, kind: &str, plan: &NewPlan) -> Option<JobId> {
    let job = scored(ledger, worker, kind, plan).await;
    result(ledger, job).await.datasets[0].reused_from
}

#[tokio::test]
async fn a_row_that_was_scored_is_not_scored_again() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let first = scored(&ledger, worker, "test", &new_plan(&[A])).await;
    let job = ledger.job(&["other name"]).await;
    ledger.plan(worker, &[A]).await;

    let state = ledger.state(job).await;
    assert_eq!(state.state, JobState::Succeeded, "with the plan");
    assert!(state.finished_at.is_some());
    assert_eq!(state.progress.scored_tokens, 76);
    assert_eq!(state.progress.planned_tokens, Some(76));
    assert_eq!(
        (
            state.progress.datasets[0].shards,
            state.progress.tokens_per_second
        ),
        (0, None)
    );
    assert!(ledger.claim(worker).await.is_none());
    assert!(ledger.store.shards(job, 0, 10).await.unwrap().is_empty());

    let (old, new) = (result(&ledger, first).await, result(&ledger, job).await);
    assert!(new.complete);
    assert_eq!(new.datasets[0].reused_from, Some(first));
    assert_eq!(old.datasets[0].reused_from, None);
    assert_eq!(new.device_kinds, ["test"]);
    assert_eq!(
        (
            new.performance.counted_tokens,
            new.performance.computed_tokens
        ),
        (0, 0)
    );
    assert_eq!(new.datasets[0].seconds.to_bits(), 0.0_f64.to_bits());
    assert_eq!(new.warnings.len(), old.warnings.len());
    let (mut taken, original) = (new.datasets[0].clone(), &old.datasets[0]);
    taken.name.clone_from(&original.name);
    taken.reused_from = None;
    taken.seconds = original.seconds;
    taken.tokens_per_second = original.tokens_per_second;
    assert_eq!(&taken, original);
    assert_eq!(
        ledger.store.documents(job, 0, 0, 100).await.unwrap(),
        ledger.store.documents(first, 0, 0, 100).await.unwrap()
    );
}

#[tokio::test]
async fn what_is_new_is_scored_beside_what_is_taken() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let first = scored(&ledger, worker, "test", &new_plan(&[A])).await;
    let job = ledger.job(&["b", "a", "c"]).await;
    ledger.plan(worker, &[B, A, B]).await;
    let state = ledger.state(job).await;
    assert_eq!(state.state, JobState::Running);
    assert_eq!(state.progress.scored_tokens, 76);
    ledger.run_all(worker).await;
    let result = result(&ledger, job).await;
    assert!(result.complete);
    let sources: Vec<_> = result.datasets.iter().map(|d| d.reused_from).collect();
    assert_eq!(
        sources,
        [None, Some(first), None],
        "a job takes nothing from itself"
    );
    assert_eq!(
        (
            result.performance.counted_tokens,
            result.performance.computed_tokens
        ),
        (114, 114)
    );
    for (row, lengths) in [(0, B), (1, A), (2, B)] {
        let documents = ledger.store.documents(job, row, 0, 100).await.unwrap();
        let sums: Vec<String> = documents.into_iter().map(|d| d.nll_exact).collect();
        assert_eq!(sums, expected(lengths));
    }
}

#[tokio::test]
async fn the_source_is_the_job_that_scored() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let plan = new_plan(&[A]);
    let first = scored(&ledger, worker, "test", &plan).await;
    for _ in 0..3 {
        assert_eq!(source(&ledger, worker, "test", &plan).await, Some(first));
    }
}

#[tokio::test]
async fn many_documents_are_taken_chunk_by_chunk() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let lengths: Vec<u64> = (0..9000).map(|n| n % 3).collect();
    let plan = new_plan(&[&lengths]);
    let first = scored(&ledger, worker, "test", &plan).await;
    let job = scored(&ledger, worker, "test", &plan).await;
    assert_eq!(
        result(&ledger, job).await.datasets[0].reused_from,
        Some(first)
    );
    let documents = ledger.store.documents(job, 0, 8990, 10).await.unwrap();
    let sums: Vec<String> = documents.into_iter().map(|d| d.nll_exact).collect();
    assert_eq!(sums, expected(&lengths)[8990..]);

    // The same key, one document of the last chunk otherwise.
    let mut other = new_plan(&[&lengths]);
    other.datasets[0].documents[8999].bytes += 1;
    assert_eq!(source(&ledger, worker, "test", &other).await, None);
}

#[tokio::test]
async fn nothing_is_taken_unless_everything_agrees() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    scored(&ledger, worker, "test", &new_plan(&[A])).await;
    let mut different: Vec<(&str, NewPlan)> = Vec::new();
    let mut change = |what, change: &dyn Fn(&mut assay_store::NewDatasetPlan)| {
        let mut plan = new_plan(&[A]);
        change(&mut plan.datasets[0]);
        different.push((what, plan));
    };
    change("key", &|row| row.content_key.push('!'));
    change("tokens", &|row| row.tokens_digest.push('!'));
    change("prefix", &|row| row.prefix = Some(1));
    change("no prefix", &|row| row.prefix = None);
    change("measures", &|row| row.text_measures = false);
    change("words", &|row| row.documents[6].words += 1);
    change("groups", &|row| {
        row.groups = Some((vec!["x".to_owned()], vec![0; 7]));
    });
    for (what, plan) in different {
        assert_eq!(source(&ledger, worker, "test", &plan).await, None, "{what}");
    }
    let plan = new_plan(&[A]);
    assert_eq!(source(&ledger, worker, "other kind", &plan).await, None);
    assert!(source(&ledger, worker, "other kind", &plan).await.is_some());
    assert!(source(&ledger, worker, "test", &plan).await.is_some());

    for (what, request) in [
        (
            "not wanted",
            JobRequest {
                reuse: false,
                ..request(&["a"])
            },
        ),
        (
            "audits wanted",
            JobRequest {
                audit: 0.5,
                ..request(&["a"])
            },
        ),
        (
            "tokens wanted",
            JobRequest {
                token_output: true,
                ..request(&["a"])
            },
        ),
    ] {
        let job = ledger.job_of(&request).await;
        ledger.plan(worker, &[A]).await;
        assert_eq!(ledger.state(job).await.state, JobState::Running, "{what}");
        ledger.store.cancel_job(job).await.unwrap();
    }
}

#[tokio::test]
async fn numbers_of_several_kinds_or_dtypes_or_of_splits_stay_where_they_are() {
    let ledger = Ledger::fresh().await;
    let (one, two) = (ledger.worker("one").await, ledger.worker("two").await);
    let plan = new_plan(&[A]);
    for how in ["mixed", "split", "in its own dtype"] {
        let adaptive = JobRequest {
            dtype: DtypeRequest::Bfloat16,
            numerics: Numerics::Adaptive,
            ..request(&["a"])
        };
        let job = ledger.job_of(&adaptive).await;
        ledger.commit_plan(one, &plan).await;
        assert_eq!(ledger.state(job).await.state, JobState::Running, "{how}");
        let (worker, kind) = match how {
            "mixed" => (two, "other"),
            _ => (one, "test"),
        };
        let claim = ledger.claim_one(&claimant_of(worker, kind)).await.unwrap();
        let Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        if how == "split" {
            let live = ledger.store.record_split(worker, claim.fence, 1).await;
            assert!(live.unwrap());
        }
        let outcome = ShardOutcome {
            split_depth: u32::from(how == "split"),
            dtype: (how == "in its own dtype").then_some(Dtype::Float32),
            ..compute(&shard)
        };
        let committed = ledger.commit(worker, claim.fence, &outcome).await;
        assert_eq!(committed, CommitOutcome::Counted);
        ledger.run_all(one).await;
        assert!(result(&ledger, job).await.complete);
        for kind in ["test", "other"] {
            let claimant = claimant_of(one, kind);
            let next = ledger.job(&["a"]).await;
            let claim = ledger.claim_one(&claimant).await.unwrap();
            ledger
                .store
                .commit_plan(one, claim.fence, &plan)
                .await
                .unwrap();
            assert_eq!(ledger.state(next).await.state, JobState::Running, "{how}");
            ledger.store.cancel_job(next).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_job_that_ended_early_lends_what_it_finished_unless_nodes_disagreed() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let both = new_plan(&[A, B]);
    let mut connection = ledger.database.connect().await;
    for (how, code, lends) in [
        ("cancelled", None, true),
        ("failed", Some("E2002"), true),
        ("failed", Some("E3004"), false),
    ] {
        connection.execute("truncate jobs cascade").await.unwrap();
        let job = ledger.job(&["a", "b"]).await;
        ledger.commit_plan(worker, &both).await;
        while ledger.state(job).await.progress.datasets[0].scored_tokens < 76 {
            let (fence, shard) = ledger.claim_shard(worker).await;
            // The largest come first, of whichever dataset; the other one is not to finish.
            if shard.dataset == 0 {
                ledger.commit(worker, fence, &compute(&shard)).await;
            }
        }
        match code {
            None => drop(ledger.store.cancel_job(job).await.unwrap()),
            Some(code) => {
                sqlx::query(
                    "update jobs set state = 'failed', finished_at = now(),
                         error = jsonb_build_object('code', $1, 'detail', 'boom')",
                )
                .bind(code)
                .execute(&mut connection)
                .await
                .unwrap();
            }
        }
        let next = ledger.job(&["a", "b"]).await;
        ledger.commit_plan(worker, &both).await;
        let result = result(&ledger, next).await;
        assert_eq!(
            result.datasets[0].reused_from,
            lends.then_some(job),
            "{how}, {code:?}"
        );
        assert_eq!(
            result.datasets[1].reused_from, None,
            "it had not been finished"
        );
    }
}

#[tokio::test]
async fn a_planner_that_was_lost_takes_nothing() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let plan = new_plan(&[A]);
    scored(&ledger, worker, "test", &plan).await;
    let job = ledger.job(&["a"]).await;
    let fence = ledger.claim(worker).await.unwrap().fence;
    ledger
        .store
        .release_attempt(worker, fence, 0)
        .await
        .unwrap();
    assert!(
        !ledger
            .store
            .commit_plan(worker, fence, &plan)
            .await
            .unwrap()
    );
    assert_eq!(ledger.state(job).await.state, JobState::Queued);
    let fence = ledger.claim(worker).await.unwrap().fence;
    ledger.store.cancel_job(job).await.unwrap();
    assert!(
        !ledger
            .store
            .commit_plan(worker, fence, &plan)
            .await
            .unwrap()
    );
    assert_eq!(ledger.state(job).await.progress.scored_tokens, 0);
}

#[tokio::test]
async fn a_plan_that_does_not_fit_its_job_is_refused() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let job = ledger.job(&["a", "b"]).await;
    let fence = ledger.claim(worker).await.unwrap().fence;
    let error = ledger
        .store
        .commit_plan(worker, fence, &new_plan(&[A]))
        .await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a plan of 1 rows for a job of 2"), "{error}");
    let mut groups = new_plan(&[A, B]);
    groups.datasets[0].groups = Some((vec!["x".to_owned()], vec![1; 7]));
    let error = ledger.store.commit_plan(worker, fence, &groups).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("one of its groups"), "{error}");
    assert_eq!(
        ledger.state(job).await.state,
        JobState::Planning,
        "rolled back"
    );
    let stored = ledger
        .store
        .commit_plan(worker, fence, &new_plan(&[A, B]))
        .await;
    assert!(stored.unwrap());
}

/// Jobs over the same datasets are posted, planned and run all at once: whoever finds the numbers
/// takes them, whoever does not scores them, and all have the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_race_have_the_same_numbers() {
    let ledger = Arc::new(Ledger::fresh().await);
    let mut workers = JoinSet::new();
    for index in 0..4 {
        let ledger = Arc::clone(&ledger);
        workers.spawn(async move {
            let worker = ledger.worker(&format!("w{index}")).await;
            let mut jobs = vec![ledger.job(&["a", "b"]).await];
            let mut claims = 0;
            while let Some(claim) = ledger.claim(worker).await {
                Box::pin(run(&ledger, worker, claim)).await;
                claims += 1;
                // In the middle of the shards of the others.
                if claims % 5 == 0 && jobs.len() < 6 {
                    jobs.push(ledger.job(&["a", "b"]).await);
                }
            }
            jobs
        });
    }
    let mut jobs = Vec::new();
    while let Some(ended) = workers.join_next().await {
        jobs.extend(ended.unwrap());
    }
    let mut sources = Vec::new();
    for job in &jobs {
        let result = result(&ledger, *job).await;
        assert!(result.complete);
        for (row, lengths) in [(0, A), (1, B)] {
            let documents = ledger.store.documents(*job, row, 0, 100).await.unwrap();
            let sums: Vec<String> = documents.into_iter().map(|d| d.nll_exact).collect();
            assert_eq!(sums, expected(lengths));
        }
        let rows = result.datasets.into_iter();
        sources.push(rows.map(|d| d.reused_from).collect::<Vec<_>>());
    }
    for (row, source) in sources.iter().flat_map(|rows| rows.iter().enumerate()) {
        let Some(source) = source else { continue };
        let at = jobs.iter().position(|job| job == source).unwrap();
        assert_eq!(sources[at][row], None, "a source has scored");
    }
}

async fn run(ledger: &Ledger, worker: WorkerId, claim: Claim) {
    match claim.work {
        Work::Plan(_) => {
            let plan = new_plan(&[A, B]);
            // Twice, as after a lost answer.
            let (one, two) = tokio::join!(
                ledger.store.commit_plan(worker, claim.fence, &plan),
                ledger.store.commit_plan(worker, claim.fence, &plan),
            );
            assert!(one.unwrap() && two.unwrap());
        }
        Work::Shard(shard) => {
            let outcome = compute(&shard);
            let committed = ledger.commit(worker, claim.fence, &outcome).await;
            assert_eq!(committed, CommitOutcome::Counted);
        }
    }
}
