//! What ends in order: a worker by SIGTERM, a job by DELETE.

use std::time::Duration;

use assay_api::{AttemptOutcome, Job, JobState};
use reqwest::{Method, StatusCode};

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

    service.add_worker("cpu:1");
    service.client.succeeded(id).await;
    // All that was in vain was given back: what the first worker had claimed and not begun.
    let in_vain = counted_once(&mut service.ledger().await, id).await;
    let shards = service.client.shards(id).await;
    let attempts = shards.iter().flat_map(|shard| &shard.attempts);
    let given_back = attempts
        .filter(|a| a.outcome == Some(AttemptOutcome::Released))
        .count();
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
