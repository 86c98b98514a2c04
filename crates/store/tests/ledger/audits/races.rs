//! Audits are claimed without the job's lock, and end under it.

use assay_api::AttemptKind::{Audit, Primary};
use assay_api::AttemptOutcome::{Committed, Revoked, Superseded};
use assay_api::{AuditState, JobId, JobState, WorkerId};
use assay_store::CommitOutcome;
use assay_testkit::{LIMIT, eventually};
use sqlx::{PgConnection, Postgres, Transaction};

use super::revoked::Scene;
use super::{audits, bring, finish, is_right, outcomes, planned, right, shard_of, take, worker};
use crate::support::{Ledger, claimant_of};

/// A claim of an audit as it is just before it is committed: the shard's row is locked, and nobody
/// sees the attempt.
async fn claiming(
    connection: &mut PgConnection,
    job: JobId,
    shard: i32,
    worker: WorkerId,
) -> (Transaction<'_, Postgres>, i64) {
    let mut tx = sqlx::Connection::begin(connection).await.unwrap();
    sqlx::query("select from shards where job_id = $1 and index = $2 for no key update")
        .bind(job)
        .bind(shard)
        .execute(&mut *tx)
        .await
        .unwrap();
    let fence = sqlx::query_scalar(
        "insert into attempts (job_id, shard, kind, worker_id, device, device_kind, lease_until)
         values ($1, $2, 'audit', $3, 'cpu:0', 'test', now() + interval '1 hour')
         returning fence",
    )
    .bind(job)
    .bind(shard)
    .bind(worker)
    .fetch_one(&mut *tx)
    .await
    .unwrap();
    (tx, fence)
}

/// Waits until some other session waits for a lock.
async fn somebody_waits(ledger: &Ledger) {
    let mut connection = ledger.database.connect().await;
    eventually("a session to wait for the claim", LIMIT, async || {
        let waiting: bool = sqlx::query_scalar(
            "select exists (
                 select from pg_stat_activity
                 where datname = current_database() and wait_event_type = 'Lock'
             )",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        waiting.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_shard_goes_back_while_an_audit_of_it_is_claimed() {
    let scene = Scene::new(&[8; 2]).await;
    let ledger = &scene.ledger;
    for _ in 0..2 {
        bring(ledger, scene.wrong, "test", Primary, 1).await;
    }
    let four = worker(ledger, "four", &["test"]).await;
    assert_eq!(bring(ledger, scene.two, "test", Audit, 0).await, 0);
    let (decides, shard) = take(ledger, scene.three, "test", Audit).await;
    let outcome = right(&shard);
    let mut connection = ledger.database.connect().await;
    let (claim, fence) = claiming(&mut connection, scene.job, 1, four).await;
    let committed = async {
        somebody_waits(ledger).await;
        claim.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(ledger.commit(scene.three, decides, &outcome), committed);
    assert_eq!(answer, CommitOutcome::Compared);
    assert_eq!(
        outcomes(ledger, scene.job, 1).await,
        [(Primary, Some(Revoked)), (Audit, Some(Superseded))]
    );
    let late = ledger.commit(four, fence, &outcome).await;
    assert_eq!(late, CommitOutcome::Late);
    scene.end(&[8; 2]).await;
}

#[tokio::test]
async fn audits_are_to_be_waived_while_one_is_claimed() {
    let ledger = Ledger::fresh().await;
    let one = worker(&ledger, "one", &["test"]).await;
    let two = worker(&ledger, "two", &["test"]).await;
    let job = planned(&ledger, one, &[8; 2], 1.0).await;
    finish(&ledger, one).await;
    let mut connection = ledger.database.connect().await;
    let (claim, fence) = claiming(&mut connection, job, 1, two).await;
    // Nobody sees that it is at something, and it claims no more.
    ledger.store.stop_worker(two).await.unwrap();
    let committed = async {
        somebody_waits(&ledger).await;
        claim.commit().await.unwrap();
    };
    let (reaped, ()) = tokio::join!(ledger.store.reap(None), committed);
    reaped.unwrap();
    assert_eq!(ledger.state(job).await.state, JobState::Running);
    assert_eq!(
        audits(&ledger, job).await,
        [Some(AuditState::Waived), Some(AuditState::Wanted)]
    );
    ledger.store.release_attempt(two, fence, 0).await.unwrap();
    is_right(&ledger, job, &[8; 2]).await;
    assert_eq!(audits(&ledger, job).await, [Some(AuditState::Waived); 2]);
}

/// Whichever comes first, an audit or the end of what it is of: in the end every shard was agreed on by two workers that are right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_are_claimed_while_shards_go_back() {
    for _ in 0..10 {
        let scene = Scene::new(&[8; 6]).await;
        let ledger = &scene.ledger;
        for _ in 0..6 {
            bring(ledger, scene.wrong, "test", Primary, 1).await;
        }
        bring(ledger, scene.two, "test", Audit, 0).await;
        let (fence, decides) = take(ledger, scene.three, "test", Audit).await;
        let outcome = right(&decides);
        let four = worker(ledger, "four", &["test"]).await;
        let claims = async {
            let mut claimed = Vec::new();
            while let Some(claim) = ledger.claim_one(&claimant_of(four, "test")).await {
                claimed.push(shard_of(claim));
            }
            claimed
        };
        let (committed, claimed) =
            tokio::join!(ledger.commit(scene.three, fence, &outcome), claims);
        assert_eq!(committed, CommitOutcome::Compared);
        for (fence, shard) in claimed {
            let counts = ledger.commit(four, fence, &right(&shard)).await;
            let wanted = match shard.kind {
                Audit => CommitOutcome::Late,
                _ => CommitOutcome::Counted,
            };
            assert_eq!(counts, wanted, "{shard:?}");
        }
        assert_eq!(ledger.state(scene.job).await.state, JobState::Running);
        scene.end(&[8; 6]).await;
        for shard in ledger.store.shards(scene.job, 0, 100).await.unwrap() {
            let committed = shard
                .attempts
                .iter()
                .filter(|a| a.outcome == Some(Committed));
            let mut names: Vec<_> = committed
                .skip_while(|a| a.kind == Audit)
                .map(|a| &*a.worker)
                .collect();
            names.dedup();
            assert_eq!(names.len(), 2, "{shard:?}");
            assert!(!names.contains(&"wrong"));
        }
    }
}
