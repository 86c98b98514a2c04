//! The numbers of a job so far.

use assay_api::{ErrorCode, Job, JobResult, JobState, PartialResult};
use assay_scoring::Convention;
use reqwest::Method;
use serde_json::json;

use crate::service::{Service, refusal};
use crate::worker;

#[tokio::test]
async fn numbers_so_far_end_as_the_result() {
    let service = Service::start().await;
    let body = json!({
        "model": "llama_gqa",
        "datasets": [{"name": "a", "documents": ["u", "v", "w", "x", "y", "z"]}],
        "method": {"window": 4},
    });
    let job: Job = service.post("/jobs", &body).await.json().await.unwrap();
    let path = format!("/jobs/{}/partial", job.id);
    let queued: PartialResult = service.get(&path).await;
    assert_eq!((queued.state, queued.complete), (JobState::Queued, false));
    assert_eq!(queued.datasets[0].numbers.scored_tokens, 0);
    assert_eq!(queued.datasets[0].planned_tokens, None);

    let lengths: &[u64] = &[3, 0, 5, 7, 2, 9];
    worker::run(
        &service.store,
        &[(lengths, Convention::Rolling { window: 4 })],
    )
    .await;
    // What was kept of the queued job does not hold for one that has ended.
    let ended: PartialResult = service.get(&path).await;
    let result: JobResult = service.get(&format!("/jobs/{}/results", job.id)).await;
    assert!(ended.complete);
    let (ended, result) = (&ended.datasets[0], &result.datasets[0]);
    assert_eq!((&ended.name, &ended.method), (&result.name, &result.method));
    assert_eq!(Some(&ended.nll_exact), result.nll_exact.as_ref());
    assert_eq!(Some(ended.nll), result.nll);
    assert_eq!(ended.numbers.perplexity, result.perplexity);
    assert_eq!(ended.numbers.standard_error, result.standard_error);
    assert_eq!(ended.shards_done, ended.shards);
    assert_eq!(ended.points.last().unwrap().numbers, ended.numbers);
    let again: PartialResult = service.get(&path).await;
    assert_eq!(&again.datasets[0], ended);
    service.finish().await;
}

#[tokio::test]
async fn what_is_no_job_has_no_numbers() {
    let service = Service::start().await;
    for id in ["01932c07-209c-7f3c-a4ac-6f2b5f9f0a51", "x"] {
        let answer = service
            .send(Method::GET, &format!("/jobs/{id}/partial"))
            .await;
        let (code, _, _) = refusal(answer).await;
        assert_eq!(code, ErrorCode::NotFound);
    }
    service.finish().await;
}
