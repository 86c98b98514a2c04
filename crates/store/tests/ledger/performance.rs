//! The speed of a job, against numbers computed by hand from a made-up history.

use assay_api::{
    AttemptKind, Baseline, BaselineRequest, BaselineSource, JobId, JobRequest, Performance, Spread,
    WorkerId,
};
use assay_store::Claimant;

use crate::audits::{bring, planned, right, worker};
use crate::support::{Ledger, RATE_KEY, claimant_of, new_plan, request};

/// Six shards of 8 operations, which count 8 and 4 tokens by turns: 0.75 tokens for an operation.
const LENGTHS: &[u64] = &[12; 3];

/// What an attempt is said to have done, in seconds. Times are since the first claim.
struct Told {
    shard: i32,
    claimed: f64,
    counted: f64,
    seconds: f64,
    claim: f64,
    load: f64,
    commit: f64,
}

/// Shards 0 to 3 by `one`, of the kind "fast": the first two before any other, 4 and 5 by `two`, of
/// the kind "slow".
const HISTORY: [Told; 6] = [
    told(0, 0.0, 2.5, 2.0, 1.5, 0.5),
    told(1, 0.0, 5.0, 2.0, 0.0, 0.5),
    told(2, 5.0, 8.0, 2.0, 0.0, 0.5),
    told(3, 5.0, 10.0, 2.0, 0.0, 0.5),
    told(4, 5.0, 9.25, 3.0, 0.0, 1.0),
    told(5, 5.0, 13.25, 3.0, 0.0, 1.0),
];

const fn told(
    shard: i32,
    claimed: f64,
    counted: f64,
    seconds: f64,
    load: f64,
    commit: f64,
) -> Told {
    Told {
        shard,
        claimed,
        counted,
        seconds,
        claim: 0.25,
        load,
        commit,
    }
}

struct Scene {
    ledger: Ledger,
    one: WorkerId,
    two: WorkerId,
    job: JobId,
}

impl Scene {
    /// The job, done, with this history.
    async fn new(baseline: BaselineRequest) -> Self {
        let ledger = Ledger::fresh().await;
        let one = worker(&ledger, "one", &["fast"]).await;
        let two = worker(&ledger, "two", &["slow"]).await;
        let wanted = JobRequest {
            baseline: BaselineRequest::Skip,
            reuse: false,
            ..request(&["a"])
        };
        let job = ledger.job_of(&wanted).await;
        ledger.commit_plan(one, &new_plan(&[LENGTHS])).await;
        for shard in 0..6 {
            let (worker, kind) = if shard < 4 {
                (one, "fast")
            } else {
                (two, "slow")
            };
            let brought = bring(&ledger, worker, kind, AttemptKind::Primary, 0).await;
            assert_eq!(brought, shard);
        }
        let scene = Self {
            ledger,
            one,
            two,
            job,
        };
        for told in &HISTORY {
            scene.tell(told).await;
        }
        sqlx::query("update jobs set baseline = $1")
            .bind(baseline.as_str())
            .execute(&mut scene.ledger.database.connect().await)
            .await
            .unwrap();
        sqlx::query("delete from device_rates")
            .execute(&mut scene.ledger.database.connect().await)
            .await
            .unwrap();
        scene
    }

    async fn tell(&self, told: &Told) {
        sqlx::query(
            "with counted as (
                 update shards set committed_at = to_timestamp(1e9 + $3), seconds = $4
                 where job_id = $7 and index = $1
                 returning fence
             )
             update attempts a
             set started_at = to_timestamp(1e9 + $2), finished_at = to_timestamp(1e9 + $3),
                 seconds = $4, claim_seconds = $5, load_seconds = $6, commit_seconds = $8
             from counted c where a.fence = c.fence",
        )
        .bind(told.shard)
        .bind(told.claimed)
        .bind(told.counted)
        .bind(told.seconds)
        .bind(told.claim)
        .bind(told.load)
        .bind(self.job)
        .bind(told.commit)
        .execute(&mut self.ledger.database.connect().await)
        .await
        .unwrap();
    }

    /// Another attempt at the last shard, of 2 s, by a device of the kind "faster".
    async fn again(&self, worker: WorkerId, kind: &str, outcome: &str, finished: f64) {
        sqlx::query(
            "insert into attempts
                 (job_id, shard, kind, worker_id, device, device_kind, started_at, lease_until,
                  finished_at, outcome, late, computed_tokens, seconds, commit_seconds,
                  clusters, units, scored)
             select $1, 5, $3::attempt_kind, $2, 'cpu:0', 'faster', to_timestamp(1e9 + 11),
                    to_timestamp(1e9 + 26), to_timestamp(1e9 + $5), $4::attempt_outcome,
                    $4 = 'superseded', 4, 2, 0, sums.clusters, sums.units, sums.scored
             from (values (1)) v left join (
                 select clusters, units, scored from shards
                 where $3 = 'audit' and job_id = $1 and index = 5
             ) sums on true",
        )
        .bind(self.job)
        .bind(worker)
        .bind(kind)
        .bind(outcome)
        .bind(finished)
        .execute(&mut self.ledger.database.connect().await)
        .await
        .unwrap();
    }

    /// The first two shards were computed alone: 16 operations in 4 seconds.
    async fn measured(&self) {
        let mut connection = self.ledger.database.connect().await;
        sqlx::query("update attempts set solo = true where job_id = $1 and shard in (0, 1)")
            .bind(self.job)
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::query(
            r#"update jobs
               set baseline_state = 'done',
                   baseline_result =
                       '{"flops": 16, "seconds": 4, "device_kind": "fast", "tokens": 12}'
               where id = $1"#,
        )
        .bind(self.job)
        .execute(&mut connection)
        .await
        .unwrap();
    }

    /// What a kind does alone, known from an earlier job.
    async fn calibrated(&self, device_kind: &str, solo: f64) {
        sqlx::query(
            "insert into device_rates
                 (device_kind, rate_key, flops_per_second, solo_flops_per_second)
             values ($1, $2, 1, $3)",
        )
        .bind(device_kind)
        .bind(RATE_KEY)
        .bind(solo)
        .execute(&mut self.ledger.database.connect().await)
        .await
        .unwrap();
    }

    async fn performance(&self) -> Performance {
        let result = self.ledger.store.result(self.job).await.unwrap();
        result.unwrap().performance
    }
}

fn is(found: Option<f64>, expected: f64) {
    let found = found.expect("it is known");
    assert!((found - expected).abs() < 1e-9, "{found}: {expected}");
}

fn is_baseline(found: Option<Baseline>, source: BaselineSource, tokens_per_second: f64) {
    let found = found.expect("it is known");
    assert_eq!((found.source, &*found.device_kind), (source, "fast"));
    is(Some(found.tokens_per_second), tokens_per_second);
}

#[tokio::test]
async fn against_a_measured_baseline() {
    let scene = Scene::new(BaselineRequest::Measure).await;
    scene.measured().await;
    scene.calibrated("slow", 1.0).await;
    // Another one of the fast kind, on another day: what was measured here counts.
    scene.calibrated("fast", 100.0).await;
    let found = scene.performance().await;
    is_baseline(found.baseline, BaselineSource::Measured, 3.0);
    // 32 operations from 5.25 (9.25 - 3 - 1) to 13.25.
    is(found.distributed_tokens_per_second, 3.0);
    is(found.speedup, 1.0);
    is(found.efficiency, 4.0 / (4.0 + 1.0));
    // The first worker's last shard is counted at 10, the second one's at 13.25.
    let spread = found.worker_seconds.unwrap();
    let hand = Spread::of(&[4.75, 8.0]).unwrap();
    is(Some(spread.max), 8.0);
    is(Some(spread.mean), hand.mean);
    is(Some(spread.standard_deviation), hand.standard_deviation);

    is(Some(found.seconds), 13.25);
    is(found.tokens_per_second, 36.0 / 13.25);
    assert_eq!((found.counted_tokens, found.computed_tokens), (36, 36));
    // Claims: 4 and 2 quarters of a second; computing: 8 and 6.
    is(found.communication_share, 1.5 / (1.5 + 14.0));
    let [one, two] = &found.devices[..] else {
        panic!("{:?}", found.devices)
    };
    assert_eq!(
        (&*one.worker, &*one.device, &*one.device_kind),
        ("one", "cpu:0", "fast")
    );
    assert_eq!((one.shards, one.tokens), (4, 24));
    assert_eq!((two.shards, two.tokens), (2, 12));
    let seconds = |of: &assay_api::DevicePerformance| {
        [
            of.busy_seconds,
            of.claim_seconds,
            of.commit_seconds,
            of.load_seconds,
            of.idle_seconds,
        ]
    };
    for (found, hand) in [
        (seconds(one), [8.0, 1.0, 2.0, 1.5, 13.25 - 8.0 - 1.0 - 1.5]),
        (seconds(two), [6.0, 0.5, 2.0, 0.0, 8.25 - 6.0 - 0.5]),
    ] {
        for (found, hand) in found.into_iter().zip(hand) {
            is(Some(found), hand);
        }
    }
}

#[tokio::test]
async fn against_a_baseline_of_an_earlier_job() {
    for request in [BaselineRequest::Auto, BaselineRequest::Measure] {
        let scene = Scene::new(request).await;
        scene.calibrated("fast", 8.0).await;
        scene.calibrated("slow", 1.0).await;
        scene.calibrated("elsewhere", 1000.0).await;
        let found = scene.performance().await;
        is_baseline(found.baseline, BaselineSource::Calibrated, 6.0);
        // Everything, from 0 (2.5 - 2 - 0.5) to 13.25.
        is(found.distributed_tokens_per_second, 36.0 / 13.25);
        is(found.speedup, 48.0 / 13.25 / 8.0);
        is(found.efficiency, 48.0 / 13.25 / 9.0);
        is(
            Some(found.worker_seconds.unwrap().mean),
            f64::midpoint(10.0, 13.25),
        );
    }
}

#[tokio::test]
async fn null_rather_than_wrong() {
    // Nothing is known of the kinds alone.
    let scene = Scene::new(BaselineRequest::Auto).await;
    let found = scene.performance().await;
    assert_eq!(
        (found.baseline, found.speedup, found.efficiency),
        (None, None, None)
    );
    assert!(found.distributed_tokens_per_second.is_some());
    // Of one of them.
    scene.calibrated("slow", 1.0).await;
    let found = scene.performance().await;
    assert_eq!(found.baseline.unwrap().device_kind, "slow");
    assert!(found.speedup.is_some() && found.efficiency.is_none());

    // Not wanted.
    let scene = Scene::new(BaselineRequest::Skip).await;
    scene.calibrated("fast", 8.0).await;
    scene.calibrated("slow", 1.0).await;
    let found = scene.performance().await;
    assert_eq!((found.baseline, found.speedup), (None, None));

    // Counted by a version that kept no account of time.
    sqlx::query("update attempts set seconds = null, commit_seconds = null, claim_seconds = null")
        .execute(&mut scene.ledger.database.connect().await)
        .await
        .unwrap();
    let found = scene.performance().await;
    assert_eq!(found.distributed_tokens_per_second, None);
    assert_eq!(
        (found.communication_share, found.worker_seconds),
        (None, None)
    );
    is(found.tokens_per_second, 36.0 / 13.25);

    // Taken from an earlier job: nothing was computed.
    let job = scene.ledger.job(&["a"]).await;
    let Scene { ledger, one, .. } = &scene;
    let planner = claimant_of(*one, "fast");
    let claim = ledger.claim_one(&planner).await.unwrap();
    let rows = new_plan(&[LENGTHS]);
    sqlx::query("update datasets set device_kind = 'fast' where finished_at is not null")
        .execute(&mut ledger.database.connect().await)
        .await
        .unwrap();
    let stored = ledger.store.commit_plan(*one, claim.fence, &rows).await;
    assert!(stored.unwrap());
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert!(result.complete);
    assert_eq!(result.performance, Performance::default());
}

#[tokio::test]
async fn before_anything_is_counted() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["fast"]).await;
    let job = ledger.job(&["a"]).await;
    let performance = async || {
        let result = ledger.store.result(job).await.unwrap();
        result.unwrap().performance
    };
    assert_eq!(performance().await, Performance::default());
    ledger.commit_plan(one, &new_plan(&[LENGTHS])).await;
    let (fence, _) = ledger.claim_shard(one).await;
    ledger.store.release_attempt(one, fence, 2).await.unwrap();
    let found = performance().await;
    assert_eq!((found.counted_tokens, found.computed_tokens), (0, 2));
    assert_eq!(found.tokens_per_second, None);
    assert_eq!(
        (found.communication_share, found.worker_seconds),
        (None, None)
    );
    assert_eq!(found.devices.len(), 1);
    assert_eq!(found.devices[0].shards, 0);
}

/// What is computed without being counted keeps a device busy; and a device that counts nothing
/// took no part.
#[tokio::test]
async fn work_that_does_not_count() {
    let scene = Scene::new(BaselineRequest::Auto).await;
    scene.calibrated("fast", 8.0).await;
    scene.calibrated("slow", 1.0).await;
    scene.calibrated("faster", 1000.0).await;
    let before = scene.performance().await;
    let three = worker(&scene.ledger, "three", &["faster"]).await;
    // A copy of the last shard, ended by the count; its result came late.
    scene.again(three, "copy", "superseded", 13.25).await;
    let after = scene.performance().await;
    assert_eq!(after.computed_tokens, before.computed_tokens + 4);
    let of_three = &after.devices[1];
    assert_eq!((&*of_three.worker, of_three.shards), ("three", 0));
    is(Some(of_three.busy_seconds), 2.0);
    is(Some(of_three.idle_seconds), 0.25);
    is(after.communication_share, 1.5 / (1.5 + 16.0));
    for same in [
        |found: &Performance| found.speedup,
        |found: &Performance| found.efficiency,
        |found: &Performance| found.distributed_tokens_per_second,
        |found: &Performance| found.worker_seconds.map(|spread| spread.mean),
    ] {
        assert_eq!(same(&after), same(&before));
    }
    assert_eq!(after.baseline, before.baseline);
    assert_eq!(
        scene.ledger.claim(scene.two).await.map(|claim| claim.fence),
        None
    );
}

/// A speed-up is that of all that was asked for.
#[tokio::test]
async fn audits_belong_to_the_distributed_phase() {
    let scene = Scene::new(BaselineRequest::Auto).await;
    for (kind, solo) in [("fast", 8.0), ("slow", 1.0), ("faster", 16.0)] {
        scene.calibrated(kind, solo).await;
    }
    let before = scene.performance().await;
    let three = worker(&scene.ledger, "three", &["faster"]).await;
    scene.again(three, "audit", "committed", 17.25).await;
    let found = scene.performance().await;
    // 48 operations that count and 8 that were audited.
    is(found.distributed_tokens_per_second, 0.75 * 56.0 / 17.25);
    is(found.speedup, 56.0 / 17.25 / 16.0);
    is(found.efficiency, 56.0 / 17.25 / 25.0);
    is(found.worker_seconds.map(|spread| spread.max), 17.25);
    assert_eq!(found.tokens_per_second, before.tokens_per_second);
}

#[tokio::test]
async fn audits_are_work_and_what_is_taken_back_is_not_counted() {
    let ledger = Ledger::fresh().await;
    let wrong = worker(&ledger, "wrong", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, wrong, &[8, 8], 1.0).await;
    bring(&ledger, wrong, "test", AttemptKind::Primary, 1).await;
    bring(&ledger, two, "test", AttemptKind::Primary, 0).await;
    bring(&ledger, two, "test", AttemptKind::Audit, 0).await;
    bring(&ledger, three, "test", AttemptKind::Audit, 0).await;
    bring(&ledger, three, "test", AttemptKind::Primary, 0).await;
    bring(&ledger, three, "test", AttemptKind::Audit, 0).await;
    bring(&ledger, two, "test", AttemptKind::Audit, 0).await;
    let result = ledger.store.result(job).await.unwrap().unwrap();
    assert!(result.complete);
    let found = result.performance;
    assert_eq!((found.counted_tokens, found.computed_tokens), (16, 56));
    let told: Vec<_> = found
        .devices
        .iter()
        .map(|device| (&*device.worker, device.shards, device.tokens))
        .collect();
    assert_eq!(told, [("three", 1, 8), ("two", 1, 8), ("wrong", 0, 0)]);
    let busy: Vec<f64> = found.devices.iter().map(|d| d.busy_seconds).collect();
    for (found, hand) in busy.into_iter().zip([24e3, 24e3, 8e3]) {
        is(Some(found), hand);
    }
}

#[tokio::test]
async fn a_baseline_that_could_not_be_measured_is_warned_of() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let wanted = JobRequest {
        baseline: BaselineRequest::Measure,
        ..request(&["a"])
    };
    let warned = async |job, part: &str| {
        let result = ledger.store.result(job).await.unwrap().unwrap();
        let warnings = result.warnings;
        assert_eq!(
            warnings.iter().filter(|w| w.contains(part)).count(),
            1,
            "{warnings:?}"
        );
        result.performance
    };
    let job = ledger.job_of(&wanted).await;
    ledger.commit_plan(one, &new_plan(&[LENGTHS])).await;
    // It gives the sample back: nobody measures any more.
    let claims = ledger.store.claim(&claimant_of(one, "test"), None).await;
    let claims = claims.unwrap();
    assert!(claims.len() >= 3);
    for claim in claims {
        ledger
            .store
            .release_attempt(one, claim.fence, 0)
            .await
            .unwrap();
    }
    while let Some(claim) = ledger.claim(one).await {
        let assay_store::Work::Shard(shard) = claim.work else {
            panic!("not planned")
        };
        ledger.commit(one, claim.fence, &right(&shard)).await;
    }
    let found = warned(job, "the baseline was not measured: no device").await;
    assert_eq!((found.baseline, found.speedup), (None, None));

    // Asked for again, and there is nothing to compute.
    let job = ledger.job_of(&wanted).await;
    let planner = Claimant {
        device: "cpu:0",
        ..claimant_of(one, "test")
    };
    let claim = ledger.claim_one(&planner).await.unwrap();
    let plan = new_plan(&[LENGTHS]);
    let stored = ledger.store.commit_plan(one, claim.fence, &plan).await;
    assert!(stored.unwrap());
    warned(
        job,
        "the baseline was not measured: all numbers are of earlier jobs",
    )
    .await;
}
