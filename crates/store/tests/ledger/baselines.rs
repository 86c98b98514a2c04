//! The baseline: one device of the fastest kind computes a sample alone, before anything else.

use assay_api::{BaselineRequest, JobId, JobRequest, JobState, WorkerId};
use assay_store::{Claim, Claimant, Work};
use chrono::{DateTime, TimeDelta, Utc};
use sqlx::Row;

use crate::claims::{claim, count, device, flops, set_rate};
use crate::support::{LEASE, Ledger, new_plan, request};

struct Baseline {
    state: Option<String>,
    result: Option<serde_json::Value>,
    solo_rate: Option<f64>,
}

async fn state(ledger: &Ledger, job: JobId) -> Baseline {
    let row = sqlx::query(
        "select baseline_state::text as state, baseline_result as result,
                (select max(solo_flops_per_second) from device_rates) as solo_rate
         from jobs where id = $1",
    )
    .bind(job)
    .fetch_one(&mut ledger.database.connect().await)
    .await
    .unwrap();
    Baseline {
        state: row.get("state"),
        result: row.get("result"),
        solo_rate: row.get("solo_rate"),
    }
}

async fn job(ledger: &Ledger, planner: WorkerId, lengths: &[u64], how: BaselineRequest) -> JobId {
    let wanted = JobRequest {
        baseline: how,
        reuse: false,
        ..request(&["a"])
    };
    let job = ledger.job_of(&wanted).await;
    ledger.commit_plan(planner, &new_plan(&[lengths])).await;
    job
}

async fn measured(ledger: &Ledger, planner: WorkerId, lengths: &[u64]) -> JobId {
    job(ledger, planner, lengths, BaselineRequest::Measure).await
}

fn indices(claims: &[Claim]) -> Vec<u32> {
    let indices = claims.iter().map(|claim| match &claim.work {
        Work::Shard(shard) => shard.index,
        Work::Plan(_) => panic!("planned already"),
    });
    indices.collect()
}

/// Shards of 8, 7, 6 and 5 operations, 25 each.
fn hundred() -> Vec<u64> {
    (0..100).map(|d| 8 - d / 25).collect()
}

async fn fast_and_slow(ledger: &Ledger) -> (WorkerId, WorkerId) {
    set_rate(ledger, "fast", 100.0).await;
    set_rate(ledger, "slow", 10.0).await;
    let fast = ledger.worker_with("fast", &["fast", "fast"]).await;
    let slow = ledger.worker_with("slow", &["slow"]).await;
    (fast, slow)
}

#[tokio::test]
async fn one_device_of_the_fastest_kind_measures_alone() {
    let ledger = Ledger::fresh().await;
    let (fast, slow) = fast_and_slow(&ledger).await;
    let first = measured(&ledger, slow, &hundred()).await;
    let slow_one = device(slow, "slow", None);
    assert!(claim(&ledger, &slow_one).await.is_empty());
    assert_eq!(state(&ledger, first).await.state.as_deref(), Some("wanted"));

    // Ten seconds are more than the job; 5 % of it are taken, evenly spread over its sizes.
    let sample = claim(&ledger, &device(fast, "fast", None)).await;
    assert_eq!(indices(&sample), [10, 30, 50, 70, 90]);
    assert_eq!(flops(&sample), [8.0, 7.0, 6.0, 6.0, 5.0]);
    assert_eq!(
        state(&ledger, first).await.state.as_deref(),
        Some("running")
    );
    let beside = Claimant {
        device: "cpu:1",
        ..device(fast, "fast", None)
    };
    assert!(claim(&ledger, &beside).await.is_empty());
    assert!(claim(&ledger, &slow_one).await.is_empty());
    for shard in ledger.store.shards(first, 0, 100).await.unwrap() {
        for attempt in shard.attempts {
            assert!(attempt.solo && attempt.device_kind == "fast");
        }
    }

    // Others find work in other jobs.
    let second = job(&ledger, slow, &[8, 8], BaselineRequest::Skip).await;
    let elsewhere = claim(&ledger, &slow_one).await;
    assert_eq!(elsewhere[0].job, second);

    let mut sample = sample;
    let last = sample.pop().unwrap();
    count(&ledger, fast, sample).await;
    assert_eq!(
        state(&ledger, first).await.state.as_deref(),
        Some("running")
    );
    count(&ledger, fast, vec![last]).await;
    let done = state(&ledger, first).await;
    assert_eq!(done.state.as_deref(), Some("done"));
    // Half a second for each shard.
    let facts = serde_json::json!({
        "flops": 32, "seconds": 2.5, "device_kind": "fast", "tokens": 32
    });
    assert_eq!(done.result, Some(facts));
    assert_eq!(done.solo_rate, Some(12.8));
    // Two of the job's largest, as anywhere.
    assert_eq!(claim(&ledger, &slow_one).await[0].job, first);
    ledger.run_all(fast).await;
    assert_eq!(ledger.state(second).await.state, JobState::Running);
}

#[tokio::test]
async fn the_sample_is_ten_seconds_of_work() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let lengths = [8; 200];
    // Eighty operations, or what is asked for at least or at most.
    for (rate, shards) in [(8.0, 10), (5.6, 7), (0.1, 3), (100.0, 10)] {
        measured(&ledger, worker, &lengths).await;
        let sample = claim(&ledger, &device(worker, "test", Some(rate))).await;
        assert_eq!(sample.len(), shards, "{rate}");
    }
    measured(&ledger, worker, &lengths).await;
    let unknown = claim(&ledger, &device(worker, "test", None)).await;
    assert_eq!(unknown.len(), 8);
    measured(&ledger, worker, &[8, 8]).await;
    let all = claim(&ledger, &device(worker, "test", Some(1.0))).await;
    assert_eq!(all.len(), 2);
}

/// The first that comes may be a hundred times slower than the others: it would measure for hours.
#[tokio::test]
async fn kinds_of_unknown_rate_show_what_they_can_before_one_measures() {
    let ledger = Ledger::fresh().await;
    let one = ledger.worker_with("one", &["a"]).await;
    let two = ledger.worker_with("two", &["b"]).await;
    let job = measured(&ledger, one, &hundred()).await;
    let of_one = claim(&ledger, &device(one, "a", None)).await;
    assert_eq!(flops(&of_one), [5.0], "the smallest");
    let of_two = claim(&ledger, &device(two, "b", None)).await;
    assert_eq!(flops(&of_two), [5.0]);
    assert_eq!(state(&ledger, job).await.state.as_deref(), Some("wanted"));
    // The kind that is known first measures.
    count(&ledger, two, of_two).await;
    let sample = claim(&ledger, &device(two, "b", None)).await;
    assert_eq!(sample.len(), 4);
    let measuring = state(&ledger, job).await;
    assert_eq!(measuring.state.as_deref(), Some("running"));
    count(&ledger, one, of_one).await;
    assert!(claim(&ledger, &device(one, "a", None)).await.is_empty());
    count(&ledger, two, sample).await;
    assert_eq!(state(&ledger, job).await.state.as_deref(), Some("done"));
}

#[tokio::test]
async fn any_device_measures_where_no_rate_is_known() {
    let ledger = Ledger::fresh().await;
    ledger.worker_with("one", &["a"]).await;
    let two = ledger.worker_with("two", &["a"]).await;
    measured(&ledger, two, &hundred()).await;
    assert_eq!(claim(&ledger, &device(two, "a", None)).await.len(), 5);
}

#[tokio::test]
async fn a_device_that_is_gone_is_not_waited_for() {
    for how in ["lost", "released", "out of service"] {
        for counted in [0, 2] {
            let ledger = Ledger::fresh().await;
            let (fast, slow) = fast_and_slow(&ledger).await;
            let job = measured(&ledger, slow, &hundred()).await;
            let mut sample = claim(&ledger, &device(fast, "fast", None)).await;
            let rest = sample.split_off(counted);
            count(&ledger, fast, sample).await;
            match how {
                "lost" => {
                    let late = Utc::now() + LEASE + TimeDelta::seconds(1);
                    ledger.store.reap(Some(late)).await.unwrap();
                }
                "released" => {
                    for claim in &rest {
                        let released = ledger.store.release_attempt(fast, claim.fence, 0);
                        released.await.unwrap();
                    }
                }
                _ => {
                    sqlx::query(
                        "update workers
                         set out_of_service_at = now(), out_of_service_reason = 'wrong'
                         where id = $1",
                    )
                    .bind(fast)
                    .execute(&mut ledger.database.connect().await)
                    .await
                    .unwrap();
                    ledger.store.reap(None).await.unwrap();
                }
            }
            let done = state(&ledger, job).await;
            assert_eq!(done.state.as_deref(), Some("done"), "{how}");
            let seconds = done.result.map(|result| result["seconds"].clone());
            let expected = (counted > 0).then(|| serde_json::json!(1));
            assert_eq!(seconds, expected, "{how}");
            assert_eq!(done.solo_rate.is_some(), counted > 0);
            // The shards are there for everybody.
            assert!(!claim(&ledger, &device(slow, "slow", None)).await.is_empty());
        }
    }
}

#[tokio::test]
async fn a_device_that_went_before_it_began_is_not_waited_for() {
    let ledger = Ledger::fresh().await;
    let (fast, slow) = fast_and_slow(&ledger).await;
    let job = measured(&ledger, slow, &hundred()).await;
    ledger.store.stop_worker(fast).await.unwrap();
    // The slow one is the fastest now.
    let sample = claim(&ledger, &device(slow, "slow", None)).await;
    assert_eq!(sample.len(), 5);
    assert_eq!(state(&ledger, job).await.state.as_deref(), Some("running"));
}

#[tokio::test]
async fn a_device_that_is_busy_for_long_is_not_waited_for() {
    let ledger = Ledger::fresh().await;
    set_rate(&ledger, "fast", 100.0).await;
    set_rate(&ledger, "slow", 10.0).await;
    let fast = ledger.worker_with("fast", &["fast"]).await;
    let slow = ledger.worker_with("slow", &["slow"]).await;
    let job = measured(&ledger, slow, &hundred()).await;
    // It plans something large.
    ledger.job(&["b"]).await;
    let planning = claim(&ledger, &device(fast, "fast", None)).await;
    assert!(matches!(planning[0].work, Work::Plan(_)));
    for (seconds, expected) in [(10, "wanted"), (55, "wanted"), (65, "done")] {
        let now: Option<DateTime<Utc>> = Some(Utc::now() + TimeDelta::seconds(seconds));
        let asked = [(planning[0].fence, None)];
        ledger.store.renew(fast, &asked, LEASE, now).await.unwrap();
        ledger.store.renew(slow, &[], LEASE, now).await.unwrap();
        assert_eq!(ledger.store.reap(now).await.unwrap().attempts, 0);
        let state = state(&ledger, job).await;
        assert_eq!(state.state.as_deref(), Some(expected), "{seconds}");
        assert_eq!(state.result, None);
    }
    assert!(!claim(&ledger, &device(slow, "slow", None)).await.is_empty());
}

#[tokio::test]
async fn auto_measures_long_jobs_on_several_devices() {
    let wanted = async |ledger: &Ledger, planner, how| {
        let job = job(ledger, planner, &[8; 100], how).await;
        let wanted = state(ledger, job).await.state;
        ledger.store.cancel_job(job).await.unwrap();
        wanted.is_some()
    };
    let ledger = Ledger::fresh().await;
    let one = ledger.worker_with("one", &["a"]).await;
    let auto = BaselineRequest::Auto;
    assert!(!wanted(&ledger, one, auto).await, "nothing is known");
    set_rate(&ledger, "a", 1.0).await;
    assert!(
        !wanted(&ledger, one, auto).await,
        "one device is its own baseline"
    );
    assert!(wanted(&ledger, one, BaselineRequest::Measure).await);
    let two = ledger.worker_with("two", &["b"]).await;
    assert!(!wanted(&ledger, one, auto).await, "little is known");
    set_rate(&ledger, "b", 12.0).await;
    assert!(wanted(&ledger, one, auto).await, "800 / 13 = 61.5 s");
    assert!(!wanted(&ledger, one, BaselineRequest::Skip).await);
    ledger.store.stop_worker(two).await.unwrap();
    let three = ledger.worker_with("three", &["b", "b"]).await;
    assert!(!wanted(&ledger, three, auto).await, "800 / 25 = 32 s");
}

/// All want to measure at once: one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_devices_race_for_the_sample() {
    let ledger = std::sync::Arc::new(Ledger::fresh().await);
    let planner = ledger.worker("planner").await;
    for _ in 0..10 {
        let job = measured(&ledger, planner, &[8; 10]).await;
        let mut racing = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let ledger = std::sync::Arc::clone(&ledger);
            racing.spawn(async move {
                let claims = claim(&ledger, &device(planner, "test", Some(1.0))).await;
                claims.len()
            });
        }
        let claimed = racing.join_all().await;
        let mut sorted = claimed.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 0, 0, 0, 0, 3], "{claimed:?}");
        ledger.store.cancel_job(job).await.unwrap();
    }
}
