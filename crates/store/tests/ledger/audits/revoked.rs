//! What happens at the same time as a worker is found to be wrong.

use assay_api::AttemptKind::{Audit, Copy, Primary};
use assay_api::AttemptOutcome::{Committed, Released, Revoked, Superseded};
use assay_api::{AuditState, JobId, JobRequest, WorkerId};
use assay_store::{Claimant, CommitOutcome, DeviceRate, ShardOutcome};

use super::{
    THREE, audited, audits, bring, finish, is_right, off, outcomes, planned, renew, right, said,
    shard_of, take, worker,
};
use crate::support::{Ledger, RATE_KEY, claimant_of, new_plan, spans};

/// Three workers of one kind, the first of which is wrong.
pub(super) struct Scene {
    pub(super) ledger: Ledger,
    pub(super) wrong: WorkerId,
    pub(super) two: WorkerId,
    pub(super) three: WorkerId,
    pub(super) job: JobId,
}

impl Scene {
    pub(super) async fn new(lengths: &[u64]) -> Self {
        let ledger = Ledger::fresh().await;
        let wrong = worker(&ledger, "wrong", &["test"]).await;
        let two = worker(&ledger, "two", &["test"]).await;
        let three = worker(&ledger, "three", &["test"]).await;
        let job = planned(&ledger, wrong, lengths, 1.0).await;
        Self {
            ledger,
            wrong,
            two,
            three,
            job,
        }
    }

    /// The audits of a shard that the first worker counted wrongly: it goes out of service.
    async fn convict(&self) {
        bring(&self.ledger, self.two, "test", Audit, 0).await;
        bring(&self.ledger, self.three, "test", Audit, 0).await;
    }

    pub(super) async fn end(&self, lengths: &[u64]) {
        for _ in 0..3 {
            finish(&self.ledger, self.two).await;
            finish(&self.ledger, self.three).await;
        }
        is_right(&self.ledger, self.job, lengths).await;
    }
}

/// A device that is so fast that it finds a copy worth its while.
fn fast(worker: WorkerId) -> Claimant<'static> {
    Claimant {
        rate: Some(DeviceRate {
            key: RATE_KEY,
            flops_per_second: 1e12,
        }),
        ..claimant_of(worker, "test")
    }
}

#[tokio::test]
async fn what_it_holds_is_refused_and_released() {
    let scene = Scene::new(&[8; 5]).await;
    let Scene {
        ledger, wrong, job, ..
    } = &scene;
    bring(ledger, *wrong, "test", Primary, 1).await;
    let (brought, shard) = take(ledger, *wrong, "test", Primary).await;
    let (held, other) = take(ledger, *wrong, "test", Primary).await;
    bring(ledger, scene.two, "test", Primary, 0).await;
    bring(ledger, scene.two, "test", Primary, 0).await;
    let (audit, _) = take(ledger, *wrong, "test", Audit).await;
    scene.convict().await;

    let renewed = renew(ledger, *wrong, &[held]).await;
    assert!(renewed.out_of_service.unwrap().contains("shard 0"));
    assert_eq!(renewed.live, [brought, held, audit]);
    // One result comes nevertheless, in a batch with what was counted before.
    let late = ledger.commit(*wrong, brought, &right(&shard)).await;
    assert_eq!(late, CommitOutcome::Late);
    assert_eq!(ledger.store.reap(None).await.unwrap().attempts, 2);
    assert_eq!(
        outcomes(ledger, *job, shard.index).await,
        [(Primary, Some(Released))]
    );
    assert_eq!(
        outcomes(ledger, *job, other.index).await,
        [(Primary, Some(Released))]
    );
    assert!(ledger.claim(*wrong).await.is_none());
    scene.end(&[8; 5]).await;
    let attempts = super::shard(ledger, *job, shard.index).await.attempts;
    assert!(attempts[0].late && attempts[1].outcome == Some(Committed));
}

#[tokio::test]
async fn a_result_told_again_stays_taken_back() {
    let scene = Scene::new(&[8, 8]).await;
    let (fence, shard) = take(&scene.ledger, scene.wrong, "test", Primary).await;
    let outcome = super::off(&shard, 1);
    let counted = scene.ledger.commit(scene.wrong, fence, &outcome).await;
    assert_eq!(counted, CommitOutcome::Counted);
    bring(&scene.ledger, scene.two, "test", Primary, 0).await;
    scene.convict().await;
    let again = scene.ledger.commit(scene.wrong, fence, &outcome).await;
    assert_eq!(again, CommitOutcome::Late);
    scene.end(&[8, 8]).await;
}

#[tokio::test]
async fn an_audit_of_what_is_taken_back_ends_with_it() {
    let scene = Scene::new(THREE).await;
    let Scene {
        ledger,
        wrong,
        two,
        three,
        job,
    } = &scene;
    bring(ledger, *wrong, "test", Primary, 1).await;
    bring(ledger, *wrong, "test", Primary, 1).await;
    bring(ledger, *two, "test", Primary, 0).await;
    assert_eq!(bring(ledger, *two, "test", Audit, 0).await, 0);
    // While one audit decides, another worker is at the other shard.
    let (fence, shard) = take(ledger, *two, "test", Audit).await;
    assert_eq!(shard.index, 1);
    assert_eq!(bring(ledger, *three, "test", Audit, 0).await, 0);
    assert_eq!(
        outcomes(ledger, *job, 1).await,
        [(Primary, Some(Revoked)), (Audit, Some(Superseded))]
    );
    assert!(renew(ledger, *two, &[fence]).await.live.is_empty());
    // The shard is counted anew, even by the same worker, before the result comes.
    while ledger.state(*job).await.progress.scored_tokens < 24 {
        bring(ledger, *two, "test", Primary, 0).await;
    }
    let late = ledger.commit(*two, fence, &right(&shard)).await;
    assert_eq!(late, CommitOutcome::Late);
    assert_eq!(audits(ledger, *job).await, [Some(AuditState::Wanted); 3]);
    assert!(ledger.claim(*two).await.is_none(), "it is its own now");
    scene.end(THREE).await;
    assert!((said(ledger, *job).await.0 - 1.0).abs() < 1e-12);
}

#[tokio::test]
async fn a_copy_by_another_worker_counts() {
    let scene = Scene::new(&[8; 4]).await;
    let Scene {
        ledger,
        wrong,
        two,
        three,
        job,
    } = &scene;
    bring(ledger, *wrong, "test", Primary, 1).await;
    let (slow, shard) = take(ledger, *wrong, "test", Primary).await;
    bring(ledger, *two, "test", Primary, 0).await;
    bring(ledger, *two, "test", Primary, 0).await;
    assert_eq!(bring(ledger, *two, "test", Audit, 0).await, 0);
    let (copy, same) = shard_of(ledger.claim_one(&fast(*two)).await.unwrap());
    assert_eq!((same.kind, same.index), (Copy, shard.index));
    assert_eq!(
        bring(ledger, *three, "test", Audit, 0).await,
        0,
        "it decides"
    );

    // The copy goes on where the primary is refused, and the shard is in no queue meanwhile.
    let late = ledger.commit(*wrong, slow, &right(&shard)).await;
    assert_eq!(late, CommitOutcome::Late);
    let state = super::shard(ledger, *job, shard.index).await.state;
    assert_eq!(state, assay_api::ShardState::Running);
    let counted = ledger.commit(*two, copy, &right(&same)).await;
    assert_eq!(counted, CommitOutcome::Counted);
    assert_eq!(
        outcomes(ledger, *job, shard.index).await,
        [(Primary, Some(Released)), (Copy, Some(Committed))]
    );
    scene.end(&[8; 4]).await;
}

#[tokio::test]
async fn a_copy_by_the_wrong_worker_does_not_count() {
    let scene = Scene::new(&[8; 3]).await;
    let Scene {
        ledger,
        wrong,
        two,
        three,
        job,
    } = &scene;
    bring(ledger, *wrong, "test", Primary, 1).await;
    let (slow, shard) = take(ledger, *two, "test", Primary).await;
    bring(ledger, *three, "test", Primary, 0).await;
    assert_eq!(bring(ledger, *wrong, "test", Audit, 0).await, 2);
    let (copy, same) = shard_of(ledger.claim_one(&fast(*wrong)).await.unwrap());
    assert_eq!((same.kind, same.index), (Copy, shard.index));
    scene.convict().await;
    let late = ledger.commit(*wrong, copy, &super::off(&same, 1)).await;
    assert_eq!(late, CommitOutcome::Late);
    let counted = ledger.commit(*two, slow, &right(&shard)).await;
    assert_eq!(counted, CommitOutcome::Counted);
    scene.end(&[8; 3]).await;
    // What two workers agreed on stays, whatever is thought of one of them.
    assert_eq!(outcomes(ledger, *job, 2).await.len(), 2);
}

#[tokio::test]
async fn tokens_go_back_with_their_shard() {
    let ledger = Ledger::fresh().await;
    let wrong = worker(&ledger, "wrong", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let wanted = JobRequest {
        token_output: true,
        ..audited(1.0)
    };
    let job = ledger.job_of(&wanted).await;
    ledger.commit_plan(wrong, &new_plan(&[&[8, 8]])).await;
    let with_tokens = |shard: &assay_store::ShardClaim| ShardOutcome {
        tokens: spans(shard),
        ..right(shard)
    };
    // Its tokens are wrong as its sums are, or they would be refused.
    let (fence, shard) = take(&ledger, wrong, "test", Primary).await;
    let mut outcome = with_tokens(&shard);
    outcome.sums[0].units += 1;
    let units = &mut outcome.tokens[0].tokens[0].units;
    *units = units.map(|units| units + 1);
    let counted = ledger.commit(wrong, fence, &outcome).await;
    assert_eq!(counted, CommitOutcome::Counted);
    let (fence, shard) = take(&ledger, two, "test", Primary).await;
    ledger.commit(two, fence, &with_tokens(&shard)).await;
    // Audits need no tokens, and keep none.
    bring(&ledger, two, "test", Audit, 0).await;
    bring(&ledger, three, "test", Audit, 0).await;
    let (fence, shard) = take(&ledger, three, "test", Primary).await;
    let again = ledger.commit(three, fence, &with_tokens(&shard)).await;
    assert_eq!(again, CommitOutcome::Counted);
    finish(&ledger, two).await;
    finish(&ledger, three).await;
    is_right(&ledger, job, &[8, 8]).await;
    let tokens = ledger.store.tokens(job, 0, 0, 0, 100).await.unwrap();
    let units: i64 = tokens
        .into_iter()
        .map(|token| token.nll_exact.unwrap().parse::<i64>().unwrap())
        .sum();
    assert_eq!(units.to_string(), crate::support::expected(&[8, 8])[0]);
}

/// That two devices of a host agree says nothing of the host.
#[tokio::test]
async fn what_it_audited_itself_goes_back() {
    let ledger = Ledger::fresh().await;
    let wrong = worker(&ledger, "wrong", &["test", "test"]).await;
    let job = planned(&ledger, wrong, THREE, 1.0).await;
    for _ in 0..3 {
        bring(&ledger, wrong, "test", Primary, 1).await;
    }
    let second = Claimant {
        device: "cpu:1",
        ..claimant_of(wrong, "test")
    };
    let (fence, itself) = shard_of(ledger.claim_one(&second).await.unwrap());
    assert_eq!((itself.kind, itself.index), (Audit, 0));
    ledger.commit(wrong, fence, &off(&itself, 1)).await;
    let [agreed, wanted] = [AuditState::Agreed, AuditState::Wanted].map(Some);
    assert_eq!(audits(&ledger, job).await, [agreed, wanted, wanted]);

    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    bring(&ledger, two, "test", Audit, 0).await;
    bring(&ledger, three, "test", Audit, 0).await;
    assert_eq!(audits(&ledger, job).await, [wanted; 3]);
    assert_eq!(ledger.state(job).await.progress.scored_tokens, 0);
    for _ in 0..2 {
        finish(&ledger, two).await;
        finish(&ledger, three).await;
    }
    is_right(&ledger, job, THREE).await;
    assert_eq!(audits(&ledger, job).await, [agreed; 3]);
}

#[tokio::test]
async fn numbers_of_a_worker_that_was_wrong_later_are_not_taken() {
    let ledger = Ledger::fresh().await;
    let wrong = worker(&ledger, "wrong", &["test"]).await;
    // Not audited: nobody knows of it.
    let earlier = ledger.planned(wrong, &[8, 8]).await;
    finish(&ledger, wrong).await;
    is_right(&ledger, earlier, &[8, 8]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let three = worker(&ledger, "three", &["test"]).await;
    let job = planned(&ledger, two, THREE, 1.0).await;
    for _ in 0..3 {
        bring(&ledger, wrong, "test", Primary, 1).await;
    }
    bring(&ledger, two, "test", Audit, 0).await;
    bring(&ledger, three, "test", Audit, 0).await;
    finish(&ledger, two).await;
    finish(&ledger, three).await;
    is_right(&ledger, job, THREE).await;

    let warnings = said(&ledger, earlier).await.1;
    assert!(
        warnings[0].starts_with("the worker wrong, of which 2 shards count here, was taken out"),
        "{warnings:?}"
    );
    for (lengths, source) in [(&[8, 8][..], None), (THREE, Some(job))] {
        let next = ledger.job_of(&audited(0.0)).await;
        ledger.commit_plan(two, &new_plan(&[lengths])).await;
        finish(&ledger, two).await;
        is_right(&ledger, next, lengths).await;
        let result = ledger.store.result(next).await.unwrap().unwrap();
        assert_eq!(result.datasets[0].reused_from, source);
    }
}
