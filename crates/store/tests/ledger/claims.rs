//! Claims: in which order, how much, by which rate.

use assay_api::{AttemptKind, JobId, JobRequest, WorkerId};
use assay_store::{Claim, Claimant, DeviceRate, Work};
use chrono::{DateTime, TimeDelta, Utc};

use crate::support::{LEASE, Ledger, RATE_KEY, claimant, claimant_of, compute, new_plan, request};

/// A device of this kind that has measured this rate itself.
pub(crate) fn device(worker: WorkerId, kind: &str, rate: Option<f64>) -> Claimant<'_> {
    Claimant {
        rate: rate.map(|flops_per_second| DeviceRate {
            key: RATE_KEY,
            flops_per_second,
        }),
        ..claimant_of(worker, kind)
    }
}

/// What the ledger knows of a device kind at jobs of the tests' key.
pub(crate) async fn set_rate(ledger: &Ledger, kind: &str, rate: f64) {
    sqlx::query(
        "insert into device_rates (device_kind, rate_key, flops_per_second) values ($1, $2, $3)",
    )
    .bind(kind)
    .bind(RATE_KEY)
    .bind(rate)
    .execute(&mut ledger.database.connect().await)
    .await
    .unwrap();
}

pub(crate) async fn rate_of(ledger: &Ledger, kind: &str) -> Option<f64> {
    sqlx::query_scalar("select flops_per_second from device_rates where device_kind = $1")
        .bind(kind)
        .fetch_optional(&mut ledger.database.connect().await)
        .await
        .unwrap()
}

/// The seconds after which an attempt is expected to end, and for which it was leased.
async fn seconds(ledger: &Ledger, fence: i64) -> (Option<f64>, f64) {
    sqlx::query_as(
        "select extract(epoch from expected_at - started_at)::double precision,
                extract(epoch from lease_until - started_at)::double precision
         from attempts where fence = $1",
    )
    .bind(fence)
    .fetch_one(&mut ledger.database.connect().await)
    .await
    .unwrap()
}

pub(crate) async fn claim(ledger: &Ledger, claimant: &Claimant<'_>) -> Vec<Claim> {
    ledger.store.claim(claimant, None).await.unwrap()
}

/// Operations of each shard claimed, in the order of the claims.
pub(crate) fn flops(claims: &[Claim]) -> Vec<f64> {
    let flops = claims.iter().map(|claim| match &claim.work {
        Work::Shard(shard) => shard.flops,
        Work::Plan(_) => panic!("planned already"),
    });
    flops.collect()
}

/// Runs what was claimed.
pub(crate) async fn count(ledger: &Ledger, worker: WorkerId, claims: Vec<Claim>) {
    for claim in claims {
        let Work::Shard(shard) = claim.work else {
            panic!("planned already")
        };
        ledger.commit(worker, claim.fence, &compute(&shard)).await;
    }
}

async fn job_of(ledger: &Ledger, priority: i32) -> JobId {
    let wanted = JobRequest {
        priority,
        reuse: false,
        ..request(&["a"])
    };
    ledger.job_of(&wanted).await
}

#[tokio::test]
async fn jobs_are_planned_and_run_by_priority_then_by_age() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    let mut jobs = Vec::new();
    for priority in [0, 7, -100, 7, 0, 100] {
        jobs.push(job_of(&ledger, priority).await);
    }
    let order = [5, 1, 3, 0, 4, 2].map(|index| jobs[index]);
    assert_eq!(ledger.state(jobs[1]).await.priority, 7);
    for expected in order {
        let claim = ledger.claim(worker).await.unwrap();
        assert!(matches!(claim.work, Work::Plan(_)));
        assert_eq!(claim.job, expected);
        let plan = new_plan(&[&[8, 7]]);
        let stored = ledger.store.commit_plan(worker, claim.fence, &plan).await;
        assert!(stored.unwrap());
    }
    let mut claimed = Vec::new();
    while let Some(claim) = ledger.claim(worker).await {
        claimed.push((claim.job, flops(&[claim])[0]));
    }
    let expected: Vec<_> = order
        .into_iter()
        .flat_map(|job| [(job, 8.0), (job, 7.0)])
        .collect();
    assert_eq!(claimed, expected);

    // What comes back is of the most urgent job again, also behind a page of others.
    for priority in [1; 20] {
        job_of(&ledger, priority).await;
        ledger.plan(worker, &[&[8]]).await;
    }
    let last = job_of(&ledger, -1).await;
    ledger.plan(worker, &[&[6]]).await;
    for _ in 0..20 {
        assert_eq!(flops(&[ledger.claim(worker).await.unwrap()]), [8.0]);
    }
    assert_eq!(ledger.claim(worker).await.unwrap().job, last);
}

#[tokio::test]
async fn a_claim_covers_two_seconds_and_less_towards_the_end() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker_with("w", &["test"]).await;
    ledger.planned(worker, &[8; 20]).await;
    // 24 operations in two seconds: three shards.
    let claims = claim(&ledger, &device(worker, "test", Some(12.0))).await;
    assert_eq!(flops(&claims), [8.0; 3]);
    let indices: Vec<_> = claims.iter().map(|claim| claim.fence).collect();
    assert!(indices.is_sorted());
    for (claim, part) in claims.iter().zip(1..) {
        let (expected, lease) = seconds(&ledger, claim.fence).await;
        let wanted = 8.0 * f64::from(part) / 12.0;
        assert!((expected.unwrap() - wanted).abs() < 1e-3, "{expected:?}");
        assert!((lease - LEASE.as_secs_f64()).abs() < 1e-3);
    }
    // 25 need a fourth one.
    let claims = claim(&ledger, &device(worker, "test", Some(12.5))).await;
    assert_eq!(flops(&claims), [8.0; 4]);

    // A fast one: half of what is not counted, which are all 20 so far, and all that is queued.
    let fast = device(worker, "test", Some(1e6));
    let claims = claim(&ledger, &fast).await;
    assert_eq!(claims.len(), 10);
    count(&ledger, worker, claims).await;
    let three = claim(&ledger, &fast).await;
    assert_eq!(three.len(), 3, "no more are there");
}

#[tokio::test]
async fn claims_become_small_towards_the_end() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker_with("w", &["test", "test"]).await;
    ledger.planned(worker, &[8; 16]).await;
    set_rate(&ledger, "test", 1e6).await;
    let mut sizes = Vec::new();
    loop {
        let claims = claim(&ledger, &device(worker, "test", None)).await;
        if claims.is_empty() {
            break;
        }
        sizes.push(claims.len());
        count(&ledger, worker, claims).await;
    }
    // Half of the half that one of two equal devices should do; what is counted in part, whole.
    assert_eq!(sizes, [4, 3, 3, 2, 1, 1, 1, 1]);
}

#[tokio::test]
async fn the_largest_come_first_but_for_the_slow_and_the_unknown() {
    let ledger = Ledger::fresh().await;
    let fast = ledger.worker_with("fast", &["fast"]).await;
    let slow = ledger.worker_with("slow", &["slow"]).await;
    ledger.planned(fast, &[5, 8, 6, 7, 5, 5]).await;

    // Nothing is known of the device: the smallest, and nobody knows when it ends.
    let unknown = claim(&ledger, &device(slow, "slow", None)).await;
    assert_eq!(flops(&unknown), [5.0]);
    assert_eq!(seconds(&ledger, unknown[0].fence).await.0, None);
    let fence = unknown[0].fence;
    ledger.store.release_attempt(slow, fence, 0).await.unwrap();

    // 36 operations are left. Of 110 a second, its part is 3.3 s * 10 = 33 up to here.
    set_rate(&ledger, "fast", 100.0).await;
    let other_key = Claimant {
        rate: Some(DeviceRate {
            key: "another model",
            flops_per_second: 1e9,
        }),
        ..device(slow, "slow", None)
    };
    let claims = claim(&ledger, &other_key).await;
    assert_eq!(flops(&claims), [5.0], "that is no rate of this job");
    count(&ledger, slow, claims).await;
    // Learned from it: 5 operations in half a second.
    assert_eq!(rate_of(&ledger, "slow").await, Some(10.0));
    let claims = claim(&ledger, &device(fast, "fast", None)).await;
    // 31 left, 28 are the fast one's part, half of it is 14.
    assert_eq!(flops(&claims), [8.0, 7.0]);
    // 31 / 110 * 10 = 2.8: all are too large for the slow one by the end of the job.
    let claims = claim(&ledger, &device(slow, "slow", None)).await;
    assert_eq!(flops(&claims), [5.0]);
    // By its own account it is not so slow: 31 / 160 * 60 = 11.6.
    let claims = claim(&ledger, &device(slow, "slow", Some(60.0))).await;
    assert!((flops(&claims)[0] - 6.0).abs() < 1e-9);
}

#[tokio::test]
async fn a_slow_device_takes_what_it_can_end_in_time() {
    let ledger = Ledger::fresh().await;
    let fast = ledger.worker_with("fast", &["fast"]).await;
    let slow = ledger.worker_with("slow", &["slow"]).await;
    ledger
        .planned(fast, &[8, 7, 6, 5, 5, 5, 5, 5, 5, 5, 5, 5])
        .await;
    set_rate(&ledger, "fast", 100.0).await;
    set_rate(&ledger, "slow", 10.0).await;
    // 66 / 110 * 10 = 6: all that is larger would keep it busy beyond the end.
    let claims = claim(&ledger, &device(slow, "slow", None)).await;
    assert_eq!(flops(&claims), [6.0]);
}

#[tokio::test]
async fn rates_are_learned_and_forgotten_slowly() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    ledger.planned(worker, &[8; 6]).await;
    let mut rate = None;
    for seconds in [0.5, 0.25, 4.0] {
        let (fence, shard) = ledger.claim_shard(worker).await;
        let outcome = assay_store::ShardOutcome {
            seconds,
            ..compute(&shard)
        };
        ledger.commit(worker, fence, &outcome).await;
        let measured = 8.0 / seconds;
        let wanted = rate.map_or(measured, |rate| 0.8 * rate + 0.2 * measured);
        let learned = rate_of(&ledger, "test").await.unwrap();
        assert!((learned - wanted).abs() < 1e-9, "{learned} {wanted}");
        rate = Some(learned);
    }
    // Several in one call weigh as much as one after the other.
    let claims = claim(&ledger, &device(worker, "test", Some(8.0))).await;
    assert_eq!(claims.len(), 2);
    let outcomes: Vec<_> = claims
        .iter()
        .map(|claim| match &claim.work {
            Work::Shard(shard) => (claim.fence, compute(shard)),
            Work::Plan(_) => panic!("planned already"),
        })
        .collect();
    let outcomes: Vec<_> = outcomes.iter().map(|(fence, o)| (*fence, o)).collect();
    ledger.store.commit_shards(worker, &outcomes).await.unwrap();
    let learned = rate_of(&ledger, "test").await.unwrap();
    let wanted = 0.64 * rate.unwrap() + 0.36 * 16.0;
    assert!((learned - wanted).abs() < 1e-9, "{learned} {wanted}");
    // The same again changes nothing.
    ledger.store.commit_shards(worker, &outcomes).await.unwrap();
    let again = rate_of(&ledger, "test").await.unwrap();
    assert!((again - learned).abs() < 1e-9, "{again} {learned}");
}

#[tokio::test]
async fn a_renewal_tells_what_is_still_needed() {
    let ledger = Ledger::fresh().await;
    let worker = ledger.worker("w").await;
    ledger.planned(worker, &[8, 8]).await;
    let expected_at = async |fence| -> Option<DateTime<Utc>> {
        sqlx::query_scalar("select expected_at from attempts where fence = $1")
            .bind(fence)
            .fetch_one(&mut ledger.database.connect().await)
            .await
            .unwrap()
    };
    let (one, _) = ledger.claim_shard(worker).await;
    let (two, _) = ledger.claim_shard(worker).await;
    let before = expected_at(two).await;
    let now = Utc::now() + TimeDelta::seconds(5);
    let asked = [(one, Some(30.0)), (two, None)];
    let renewed = ledger.store.renew(worker, &asked, LEASE, Some(now)).await;
    assert_eq!(renewed.unwrap().live, [one, two]);
    let told = expected_at(one).await.unwrap() - now;
    assert!((told - TimeDelta::seconds(30)).abs() < TimeDelta::milliseconds(1));
    assert_eq!(expected_at(two).await, before);
}

#[tokio::test]
async fn a_worker_out_of_service_gets_nothing() {
    let ledger = Ledger::fresh().await;
    let (out, other) = (ledger.worker("out").await, ledger.worker("other").await);
    let wanted = JobRequest {
        audit: 1.0,
        ..request(&["a"])
    };
    ledger.job_of(&wanted).await;
    ledger.commit_plan(other, &new_plan(&[&[8, 8, 8]])).await;
    let first = ledger.claim(other).await.unwrap();
    count(&ledger, other, vec![first]).await;
    ledger.claim(other).await.unwrap();
    let (held, shard) = ledger.claim_shard(out).await;
    ledger.job(&["b"]).await;
    sqlx::query(
        "update workers set out_of_service_at = now(), out_of_service_reason = 'wrong numbers'
         where id = $1",
    )
    .bind(out)
    .execute(&mut ledger.database.connect().await)
    .await
    .unwrap();
    // A planning, a shard to audit, a running one to copy: nothing of it.
    let fast = device(out, "test", Some(1e9));
    assert!(claim(&ledger, &fast).await.is_empty());
    assert_eq!(ledger.store.reap(None).await.unwrap().attempts, 1);
    let renewed = ledger.store.renew(out, &[(held, None)], LEASE, None).await;
    let renewed = renewed.unwrap();
    assert!(renewed.live.is_empty());
    assert_eq!(renewed.out_of_service.as_deref(), Some("wrong numbers"));
    assert!(claim(&ledger, &fast).await.is_empty());
    // The planning is there for the other worker, then the shard that went back.
    let planning = ledger.claim(other).await.unwrap();
    assert!(matches!(planning.work, Work::Plan(_)));
    let (_, again) = ledger.claim_shard(other).await;
    assert_eq!(
        (again.index, again.kind),
        (shard.index, AttemptKind::Primary)
    );
}

#[tokio::test]
async fn an_unknown_worker_claims_nothing() {
    let ledger = Ledger::fresh().await;
    let stranger = uuid::Uuid::now_v7();
    let refused = ledger.store.claim(&claimant(stranger), None).await;
    assert!(matches!(
        refused,
        Err(assay_store::StoreError::UnknownWorker(id)) if id == stranger
    ));
}
