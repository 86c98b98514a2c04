//! Many workers at once, with everything that may happen between them: copies, audits, baselines,
//! lost leases. None of the shards is lost, none is counted twice, and all sums are right.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use assay_api::{
    AttemptKind, AttemptOutcome, AuditState, BaselineRequest, JobId, JobRequest, JobState, WorkerId,
};
use assay_scoring::{Convention, PlanConstants};
use assay_store::{Claim, Claimant, CommitOutcome, NewPlan, ShardOutcome, Work};
use assay_testkit::{LIMIT, eventually};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use crate::chaos::Random;
use crate::claims::device;
use crate::support::{LEASE, Ledger, WINDOW, compute, expected, plan_by, request};

const WORKERS: u64 = 64;
/// Four jobs of so many shards each, about.
const SHARDS: u32 = 2750;

/// Lengths of the documents of one job: two windows for each shard.
fn lengths() -> Vec<u64> {
    (0..u64::from(SHARDS) * 2).map(|d| 8 - d % 4).collect()
}

fn plan() -> NewPlan {
    let rolling = Convention::Rolling { window: WINDOW };
    let constants = PlanConstants {
        micro_batch_tokens: 2 * WINDOW,
        max_shards: SHARDS,
        tail_divisor: 0,
        ..PlanConstants::default()
    };
    let mut plan = plan_by(&[(&lengths(), rolling)], constants);
    // That of the tests names every length, which is too long for an index.
    "crowd".clone_into(&mut plan.datasets[0].content_key);
    plan
}

/// What the workers share.
struct Crowd {
    ledger: Ledger,
    plan: NewPlan,
    jobs: Vec<JobId>,
    /// As many calls at once as there are connections: whoever waits for a connection for long is
    /// refused one.
    turns: Semaphore,
}

impl Crowd {
    /// Waits for something to do; nothing when every job has ended.
    async fn claim(&self, claimant: &Claimant<'_>) -> Vec<Claim> {
        let store = &self.ledger.store;
        eventually("work, or the end of all jobs", LIMIT, async || {
            let _turn = self.turns.acquire().await.unwrap();
            // The worker's own lease; what it holds is ended long before.
            store
                .renew(claimant.worker, &[], LEASE, None)
                .await
                .unwrap();
            let claims = store.claim(claimant, None).await.unwrap();
            if !claims.is_empty() {
                return Some(claims);
            }
            store.reap(None).await.unwrap();
            for job in &self.jobs {
                if !self.ledger.state(*job).await.state.is_final() {
                    return None;
                }
            }
            Some(Vec::new())
        })
        .await
    }

    async fn commit(&self, worker: WorkerId, ready: &[(i64, ShardOutcome)]) -> Vec<CommitOutcome> {
        let _turn = self.turns.acquire().await.unwrap();
        let outcomes: Vec<_> = ready.iter().map(|(fence, o)| (*fence, o)).collect();
        let store = &self.ledger.store;
        store.commit_shards(worker, &outcomes).await.unwrap()
    }

    /// One worker, until every job has ended.
    async fn work(&self, index: u64) {
        let worker = {
            let _turn = self.turns.acquire().await.unwrap();
            let name = format!("w{index}");
            self.ledger.worker_with(&name, &["test"]).await
        };
        let mut random = Random(index);
        // From one shard a claim to as many as there may be; some cannot say yet.
        let times = i32::try_from(index % 8).unwrap();
        let rate = (times > 0).then(|| 4.0 * 2_f64.powi(times));
        loop {
            let mut claimant = device(worker, "test", rate);
            let dies = random.below(64) == 0;
            if dies {
                claimant.lease = Duration::ZERO;
            }
            let claims = self.claim(&claimant).await;
            if claims.is_empty() {
                return;
            }
            let mut ready: Vec<(i64, ShardOutcome)> = Vec::new();
            for claim in claims {
                match claim.work {
                    Work::Plan(_) => {
                        let _turn = self.turns.acquire().await.unwrap();
                        let store = &self.ledger.store;
                        let planned = store.commit_plan(worker, claim.fence, &self.plan);
                        // Somebody else plans if this lease runs out first.
                        planned.await.unwrap();
                    }
                    Work::Shard(shard) => ready.push((claim.fence, compute(&shard))),
                }
            }
            if dies && random.below(2) == 0 {
                continue;
            }
            // In pieces, from behind, the last one twice.
            while !ready.is_empty() {
                let piece = ready.split_off(ready.len() - 1 - random.index(ready.len()));
                let answers = self.commit(worker, &piece).await;
                assert!(!answers.contains(&CommitOutcome::Disagrees));
                if ready.is_empty() {
                    assert_eq!(self.commit(worker, &piece).await, answers);
                }
            }
        }
    }
}

#[tokio::test]
async fn sixty_four_workers_count_every_shard_once() {
    let ledger = Ledger::fresh().await;
    let mut jobs = Vec::new();
    for (priority, audit, baseline) in [
        (0, 0.0, BaselineRequest::Skip),
        (5, 0.0, BaselineRequest::Measure),
        (0, 0.1, BaselineRequest::Auto),
        (5, 0.2, BaselineRequest::Measure),
    ] {
        let wanted = JobRequest {
            priority,
            audit,
            baseline,
            reuse: false,
            ..request(&["a"])
        };
        jobs.push(ledger.job_of(&wanted).await);
    }
    let crowd = Rc::new(Crowd {
        ledger,
        plan: plan(),
        jobs,
        turns: Semaphore::new(8),
    });
    let mut working = JoinSet::new();
    let here = LocalSet::new();
    for index in 0..WORKERS {
        let crowd = Rc::clone(&crowd);
        working.spawn_local_on(async move { Box::pin(crowd.work(index)).await }, &here);
    }
    here.run_until(async {
        while let Some(ended) = working.join_next().await {
            ended.unwrap();
        }
    })
    .await;

    let Crowd { ledger, plan, .. } = &*crowd;
    let sums = expected(&lengths());
    let mut kinds: HashMap<AttemptKind, u32> = HashMap::new();
    let mut all = 0;
    for &job in &crowd.jobs {
        let ended = ledger.state(job).await;
        assert_eq!(ended.state, JobState::Succeeded, "{:?}", ended.error);
        let documents = ledger.store.documents(job, 0, 0, 10_000).await.unwrap();
        let found: Vec<String> = documents.into_iter().map(|d| d.nll_exact).collect();
        assert!(found == sums, "the sums of {job} differ");
        let result = ledger.store.result(job).await.unwrap().unwrap();
        assert_eq!(
            result.performance.counted_tokens,
            lengths().iter().sum::<u64>()
        );
        let shards = ledger.store.shards(job, 0, 10_000).await.unwrap();
        assert_eq!(shards.len(), plan.datasets[0].plan.shards.len());
        let (mut audits, share) = (0, shards.len() as f64 * ended.audit);
        all += shards.len();
        for shard in shards {
            let mut counted = 0;
            for attempt in shard.attempts {
                let outcome = attempt.outcome.expect("nothing is live any more");
                *kinds.entry(attempt.kind).or_default() += 1;
                let committed = outcome == AttemptOutcome::Committed;
                match attempt.kind {
                    AttemptKind::Audit => audits += u32::from(committed),
                    _ => counted += u32::from(committed),
                }
            }
            assert_eq!(counted, 1, "shard {} of {job}", shard.index);
            assert!(matches!(shard.audit, None | Some(AuditState::Agreed)));
        }
        let more = f64::from(audits) - share;
        assert!((0.0..1.0).contains(&more), "{audits} audits of {job}");
    }
    assert!(all > 10_000);
    println!("{kinds:?}");
    assert!(kinds.contains_key(&AttemptKind::Audit));
}
