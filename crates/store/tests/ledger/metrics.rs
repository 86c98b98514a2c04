//! What the ledger says of itself after a history that is known, and that what a reader remembers
//! is what another one reads.

use std::collections::BTreeMap;
use std::time::Duration;

use assay_api::{AttemptKind, ErrorCode, JobState, WorkerId};
use assay_store::{
    AttemptFailure, CLAIM_LATENCY_BOUNDS, CommitOutcome, DeviceTotals, LedgerMetrics,
    MetricsReader, RECENT, ShardOutcome,
};
use chrono::{DateTime, TimeDelta, Utc};

use crate::audits::{audited, bring, planned, right, take, worker};
use crate::support::{Ledger, claimant_of};

/// Six shards of 8 tokens and 8 operations.
const SIX: &[u64] = &[8; 6];
/// What a device is said to take for one of them, in seconds: see [`right`].
const SECONDS: u64 = 8000;

/// A ledger with a fast worker and one with two slow devices.
struct Scene {
    ledger: Ledger,
    fast: WorkerId,
    slow: WorkerId,
}

impl Scene {
    async fn new() -> Self {
        let ledger = Ledger::fresh().await;
        let fast = worker(&ledger, "fast", &["fast"]).await;
        let slow = worker(&ledger, "slow", &["slow", "slow"]).await;
        Self { ledger, fast, slow }
    }

    /// A reader that remembers nothing.
    fn reader(&self) -> MetricsReader {
        MetricsReader::new(self.ledger.store.clone())
    }

    async fn read(&self, now: Option<DateTime<Utc>>) -> LedgerMetrics {
        self.reader().read(now).await.unwrap()
    }

    /// A job that ends well after one error, one loss, one release and a result that comes late.
    async fn history(&self) {
        let Self { ledger, fast, slow } = self;
        planned(ledger, *fast, SIX, 0.0).await;
        bring(ledger, *fast, "fast", AttemptKind::Primary, 0).await;
        let (failed, _) = take(ledger, *slow, "slow", AttemptKind::Primary).await;
        let failure = AttemptFailure {
            code: ErrorCode::ComputeFailed,
            detail: "boom".to_owned(),
            field: None,
            is_final: false,
            computed_tokens: 3,
        };
        let store = &ledger.store;
        store.fail_attempt(*slow, failed, &failure).await.unwrap();
        let (released, _) = take(ledger, *slow, "slow", AttemptKind::Primary).await;
        store.release_attempt(*slow, released, 5).await.unwrap();
        let (lost, shard) = take(ledger, *slow, "slow", AttemptKind::Primary).await;
        // The lease is of 15 s, the workers' own of an hour.
        let later = Utc::now() + TimeDelta::seconds(20);
        assert_eq!(store.reap(Some(later)).await.unwrap().attempts, 1);
        let late = ledger.commit(*slow, lost, &right(&shard)).await;
        assert_eq!(late, CommitOutcome::Late);
        self.finish().await;
    }

    /// The rest of what there is to do, by whoever may.
    async fn finish(&self) {
        loop {
            let mut claimed = 0;
            for (worker, kind) in [(self.fast, "fast"), (self.slow, "slow")] {
                let claim = self.ledger.claim_one(&claimant_of(worker, kind)).await;
                let Some(claim) = claim else { continue };
                let assay_store::Work::Shard(shard) = claim.work else {
                    panic!("not planned")
                };
                let outcome = ShardOutcome {
                    claim_seconds: 0.25,
                    load_seconds: 1.5,
                    commit_seconds: 1e12,
                    ..right(&shard)
                };
                let counted = self.ledger.commit(worker, claim.fence, &outcome).await;
                assert_eq!(counted, CommitOutcome::Counted);
                claimed += 1;
            }
            if claimed == 0 {
                return;
            }
        }
    }

    async fn execute(&self, statement: &'static str) {
        let mut connection = self.ledger.database.connect().await;
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .unwrap();
    }
}

fn by_label<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(label, n)| (label.to_owned(), n)).into()
}

fn jobs(metrics: &LedgerMetrics, state: JobState) -> u64 {
    let of_state = metrics.jobs.iter().filter(|(of, _)| *of == state);
    of_state.map(|(_, n)| n).sum()
}

/// The attempts that there are any of.
fn ended(metrics: &LedgerMetrics) -> Vec<(&str, &str, u64)> {
    let any = metrics.attempts.iter().filter(|(_, n)| **n > 0);
    any.map(|((kind, outcome), n)| (&**kind, &**outcome, *n))
        .collect()
}

#[tokio::test]
async fn an_empty_ledger_has_all_its_counts() {
    let scene = Scene::new().await;
    let metrics = scene.read(None).await;
    let states = JobState::ALL.iter().map(|state| (*state, 0));
    assert_eq!(metrics.jobs, states.collect::<Vec<_>>());
    let kinds = [("audit", 0), ("copy", 0), ("plan", 0), ("primary", 0)];
    assert_eq!(metrics.running_attempts, by_label(kinds));
    assert_eq!((metrics.attempts.len(), ended(&metrics)), (4 * 6, vec![]));
    assert_eq!(metrics.devices, by_label([("fast", 1), ("slow", 2)]));
    let workers = [("live", 2), ("lost", 0), ("out_of_service", 0)];
    assert_eq!(metrics.workers, by_label(workers));
    let nothing = DeviceTotals::default();
    assert_eq!(
        metrics.device_kinds,
        ["fast", "slow"]
            .map(|kind| (kind.to_owned(), nothing))
            .into()
    );
    let waits: Vec<_> = metrics.claim_latency.keys().collect();
    assert_eq!(waits, ["planning", "shards"]);
    assert_eq!(
        metrics.unclaimed,
        ["planning", "shards"]
            .map(|work| (work.to_owned(), Duration::ZERO))
            .into()
    );
}

#[tokio::test]
async fn a_history_is_counted() {
    let scene = Scene::new().await;
    scene.history().await;
    let metrics = scene.read(None).await;
    assert_eq!(
        ended(&metrics),
        [
            ("plan", "committed", 1),
            ("primary", "committed", 6),
            ("primary", "failed", 1),
            ("primary", "lost", 1),
            ("primary", "released", 1),
        ]
    );
    assert_eq!((metrics.late_results, metrics.revoked_attempts), (1, 0));
    assert_eq!(jobs(&metrics, JobState::Succeeded), 1);
    assert_eq!(metrics.queued_shards, 0);
    // All that counted, and nothing of what was computed in vain.
    let tokens: u64 = metrics.device_kinds.values().map(|kind| kind.tokens).sum();
    assert_eq!(tokens, 48);
    let fast = metrics.device_kinds["fast"];
    let (brought, others) = (fast.tokens / 8, fast.tokens / 8 - 1);
    assert_eq!(fast.recent_tokens, fast.tokens);
    assert_eq!(fast.computing, Duration::from_secs(brought * SECONDS));
    assert_eq!(fast.claiming, Duration::from_millis(others * 250));
    assert_eq!(fast.loading, Duration::from_millis(others * 1500));
    // What a worker tells is bounded.
    assert_eq!(fast.committing, Duration::from_secs(others * 1_000_000_000));
}

#[tokio::test]
async fn what_is_remembered_is_what_is_read_anew() {
    let scene = Scene::new().await;
    let mut remembers = scene.reader();
    let minutes = |n| Some(Utc::now() + TimeDelta::minutes(n));
    let mut before = remembers.read(None).await.unwrap();
    for round in 0..3 {
        scene.history().await;
        // Right after it, when nothing is settled, and when all of it is.
        for now in [None, minutes(20 * round + 3), minutes(20 * round + 10)] {
            let remembered = remembers.read(now).await.unwrap();
            let anew = scene.read(now).await;
            if now.is_some() {
                assert_eq!(remembered, anew);
            }
            for (ended, n) in &before.attempts {
                assert!(remembered.attempts[ended] >= *n, "{ended:?}");
            }
            before = remembered;
        }
        let fast = before.device_kinds["fast"];
        assert_eq!(fast.recent_tokens, 0);
    }
    assert_eq!(
        before.attempts[&("primary".to_owned(), "committed".to_owned())],
        18
    );
    assert_eq!(before.late_results, 3);

    // What changes of an attempt that was settled.
    scene
        .execute("update attempts set outcome = 'revoked' where fence = (select max(fence) from attempts)")
        .await;
    scene
        .execute("update attempts set late = true where outcome = 'released'")
        .await;
    let now = minutes(70);
    let remembered = remembers.read(now).await.unwrap();
    assert_eq!(remembered, scene.read(now).await);
    assert_eq!(
        (remembered.revoked_attempts, remembered.late_results),
        (1, 6)
    );
    assert_eq!(
        remembered.attempts, before.attempts,
        "it was committed once"
    );
    assert_eq!(
        remembered.device_kinds["slow"].tokens,
        before.device_kinds["slow"].tokens
    );
}

#[tokio::test]
async fn a_live_attempt_is_counted_once_it_ends() {
    let scene = Scene::new().await;
    let ledger = &scene.ledger;
    let mut remembers = scene.reader();
    let job = planned(ledger, scene.fast, SIX, 0.0).await;
    let (fence, shard) = take(ledger, scene.fast, "fast", AttemptKind::Primary).await;
    bring(ledger, scene.slow, "slow", AttemptKind::Primary, 0).await;
    let now = Some(Utc::now() + TimeDelta::minutes(10));
    let metrics = remembers.read(now).await.unwrap();
    assert_eq!(metrics.running_attempts["primary"], 1);
    assert_eq!(
        (metrics.queued_shards, jobs(&metrics, JobState::Running)),
        (4, 1)
    );
    assert_eq!(ended(&metrics)[1..], [("primary", "committed", 1)]);

    ledger.commit(scene.fast, fence, &right(&shard)).await;
    let (_, _) = take(ledger, scene.fast, "fast", AttemptKind::Primary).await;
    ledger.store.cancel_job(job).await.unwrap();
    let metrics = remembers.read(now).await.unwrap();
    assert_eq!(
        ended(&metrics)[1..],
        [("primary", "cancelled", 1), ("primary", "committed", 2)]
    );
    assert_eq!(jobs(&metrics, JobState::Cancelled), 1);
    // Shards of a job that has ended are not in the queue.
    assert_eq!(
        (metrics.queued_shards, metrics.running_attempts["primary"]),
        (0, 0)
    );
    assert_eq!(metrics, scene.read(now).await);
}

#[tokio::test]
async fn waits_are_told_from_when_there_was_something_to_claim() {
    let scene = Scene::new().await;
    let ledger = &scene.ledger;
    let posted = Utc::now();
    ledger.job_of(&audited(0.0)).await;
    sqlx::query("update jobs set created_at = $1")
        .bind(posted)
        .execute(&mut ledger.database.connect().await)
        .await
        .unwrap();
    let after = |seconds| Some(posted + TimeDelta::seconds(seconds));
    let waited = async |now| scene.read(now).await.unclaimed;
    let of = |waits: &BTreeMap<String, Duration>| (waits["planning"], waits["shards"]);
    let seconds = Duration::from_secs;
    assert_eq!(
        of(&waited(after(100)).await),
        (seconds(100), Duration::ZERO)
    );

    ledger.plan(scene.fast, &[SIX]).await;
    bring(ledger, scene.fast, "fast", AttemptKind::Primary, 0).await;
    // 5 s, which is a bound and belongs to its class, and 7 s; the last claim is 60 s old.
    scene
        .execute(
            "update attempts a
             set started_at = j.created_at + interval '5 s' + case kind
                     when 'plan' then interval '0' else interval '8 s' end,
                 finished_at = j.created_at + case kind
                     when 'plan' then interval '6 s' else interval '14 s' end
             from jobs j",
        )
        .await;
    let metrics = scene.read(after(73)).await;
    assert_eq!(of(&metrics.unclaimed), (Duration::ZERO, seconds(60)));
    let five = CLAIM_LATENCY_BOUNDS
        .iter()
        .position(|bound| *bound == seconds(5))
        .unwrap();
    for (work, class, sum) in [("planning", five, 5), ("shards", five + 1, 7)] {
        let latency = &metrics.claim_latency[work];
        assert_eq!(latency.classes[class], 1, "{work}: {latency:?}");
        assert_eq!(latency.classes.iter().sum::<u64>(), 1, "{work}");
        assert_eq!(latency.sum, seconds(sum));
    }

    // Told once, also when it has been settled for long.
    let mut remembers = scene.reader();
    for _ in 0..2 {
        let now = Some(posted + TimeDelta::from_std(10 * RECENT).unwrap());
        let again = remembers.read(now).await.unwrap();
        assert_eq!(again.claim_latency, metrics.claim_latency);
    }
}

#[tokio::test]
async fn workers_that_are_gone_are_missed_for_an_hour() {
    let scene = Scene::new().await;
    let ledger = &scene.ledger;
    ledger.store.stop_worker(scene.slow).await.unwrap();
    let metrics = scene.read(None).await;
    assert_eq!(metrics.devices, by_label([("fast", 1)]));
    // Its lease holds for an hour.
    for (minutes, states) in [
        (61, [("live", 0), ("lost", 1), ("out_of_service", 0)]),
        (121, [("live", 0), ("lost", 0), ("out_of_service", 0)]),
    ] {
        let now = Some(Utc::now() + TimeDelta::minutes(minutes));
        assert_eq!(scene.read(now).await.workers, by_label(states), "{minutes}");
    }
    scene
        .execute(
            "update workers set out_of_service_at = now(), out_of_service_reason = 'wrong'
             where stopped_at is null",
        )
        .await;
    let metrics = scene.read(None).await;
    let states = [("live", 0), ("lost", 0), ("out_of_service", 1)];
    assert_eq!(
        (metrics.workers, metrics.devices),
        (by_label(states), BTreeMap::new())
    );
}

/// What is deleted has been counted for good, for whoever reads on and for whoever begins.
#[tokio::test]
async fn counters_do_not_shrink_with_what_is_deleted() {
    let scene = Scene::new().await;
    scene.history().await;
    scene
        .execute(
            "update attempts set outcome = 'revoked' where fence = (
         select min(fence) from attempts where kind = 'primary' and outcome = 'committed'
     )",
        )
        .await;
    // Nothing of it is recent any more, nor live.
    let later = Utc::now() + TimeDelta::days(3);
    let mut reader = scene.reader();
    let before = reader.read(Some(later)).await.unwrap();
    assert!(before.revoked_attempts > 0 && before.late_results > 0 && !ended(&before).is_empty());
    let store = &scene.ledger.store;
    let keep = Duration::from_hours(24);
    assert_eq!(store.remove_old_jobs(keep, Some(later)).await.unwrap(), 1);
    assert_eq!(reader.read(Some(later)).await.unwrap(), before);
    assert_eq!(scene.read(Some(later)).await, before);
    // Once more of the same is twice as much.
    scene.history().await;
    assert_eq!(store.remove_old_jobs(keep, Some(later)).await.unwrap(), 1);
    let twice = reader.read(Some(later)).await.unwrap();
    assert_eq!(twice, scene.read(Some(later)).await);
    assert_eq!(
        jobs(&twice, JobState::Succeeded),
        2 * jobs(&before, JobState::Succeeded)
    );
    assert_eq!(twice.late_results, 2 * before.late_results);
}
