//! What ends in order: a worker by SIGTERM, a job by DELETE.

use std::time::Duration;

use assay_api::{AttemptOutcome, AttemptRow, Job, JobState, ShardState};
use assay_testkit::{LIMIT, eventually};
use reqwest::{Method, StatusCode};
use sqlx::Connection;

use crate::ledger::counted_once;
use crate::long_job::{job, moment, roots, sums};
use crate::random::Random;
use crate::service::Service;

/// Any moment within a shard will do.
const SHARD: Duration = Duration::from_millis(300);

/// Errors and losses that the shards of all jobs were charged with.
async fn charges(service: &Service) -> i64 {
    sqlx::query_scalar("select coalesce(sum(errors + losses), 0) from shards")
        .fetch_one(&mut service.ledger().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_stopped_worker_costs_nothing() {
    let mut random = Random::seeded();
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let id = service.client.submit(&job()).await;
    moment(&service, id, SHARD, &mut random).await;
    service.workers[0].stop().await;
    assert_eq!(charges(&service).await, 0);
    let live = |job: Job| (job.state, job.progress.scored_tokens > 0);
    assert_eq!(
        live(service.client.job(id).await),
        (JobState::Running, true)
    );

    // A shard of one micro-batch is counted or not begun. This worker claims several and is slow
    // with the first; the others it has not begun.
    service.add_worker_with("cpu:0", &["--fault", "delay=1"]);
    let mut ledger = service.ledger().await;
    let claimed: Vec<i32> = eventually("a claim of several shards", LIMIT, async || {
        let live = "select shard from attempts where outcome is null and shard is not null
                    order by fence";
        let shards: Vec<i32> = sqlx::query_scalar(live)
            .fetch_all(&mut ledger)
            .await
            .unwrap();
        (shards.len() > 1).then_some(shards)
    })
    .await;
    ledger.close().await.unwrap();
    service.workers[1].stop().await;
    let shards = service.client.shards(id).await;
    // The first worker may have given back the same ones.
    let released = |attempt: &AttemptRow| attempt.outcome == Some(AttemptOutcome::Released);
    for (place, shard) in claimed.iter().enumerate() {
        let shard = &shards[usize::try_from(*shard).unwrap()];
        if place == 0 && shard.state == ShardState::Done {
            continue;
        }
        assert_eq!(shard.state, ShardState::Queued, "{shard:?}");
        assert!(!shard.attempts.is_empty(), "{shard:?}");
        assert!(shard.attempts.iter().all(released), "{shard:?}");
    }
    assert_eq!(charges(&service).await, 0);

    service.add_worker("cpu:1");
    service.client.succeeded(id).await;
    // All that was in vain was given back: what the second worker held, and what the first one had
    // claimed and not begun.
    let in_vain = counted_once(&mut service.ledger().await, id).await;
    let shards = service.client.shards(id).await;
    let attempts = shards.iter().flat_map(|shard| &shard.attempts);
    let given_back = attempts.filter(|attempt| released(attempt)).count();
    assert!(given_back > 0);
    assert_eq!(usize::try_from(in_vain), Ok(given_back));
    assert_eq!(charges(&service).await, 0);
    service.finish().await;
}

#[tokio::test]
async fn a_cancelled_job_makes_way() {
    let mut random = Random::seeded();
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let id = service.client.submit(&job()).await;
    moment(&service, id, SHARD, &mut random).await;
    let cancel = service
        .client
        .request(Method::DELETE, &format!("/jobs/{id}"));
    let answer = cancel.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let cancelled: Job = answer.json().await.unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert!(cancelled.finished_at.is_some());

    // No attempt outlives the job in the ledger.
    let workers = service.client.workers().await;
    assert!(
        workers.iter().all(|worker| worker.running == 0),
        "{workers:?}"
    );
    assert!(sums(&service, id).await.is_empty());
    // Both devices take up the next job while this one's last shards would still be computing.
    let next = service.client.submit(&job()).await;
    service.client.succeeded(next).await;
    assert_eq!(counted_once(&mut service.ledger().await, next).await, 0);
    let after = service.client.job(id).await;
    assert_eq!(after, cancelled, "nothing is counted after the end");
    service.finish().await;
}
