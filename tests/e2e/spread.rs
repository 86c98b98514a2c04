//! The same job gives the same integers on one worker and on several, and again.

use std::collections::BTreeSet;

use assay_api::JobId;

use crate::ledger::counted_once;
use crate::long_job::{job, roots, sums};
use crate::service::Service;

async fn workers_of(service: &Service, job: JobId) -> BTreeSet<String> {
    let shards = service.client.shards(job).await;
    let attempts = shards.into_iter().flat_map(|shard| shard.attempts);
    attempts.map(|attempt| attempt.worker).collect()
}

#[tokio::test]
async fn sums_do_not_depend_on_the_workers() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    let mut runs = Vec::new();
    for workers in [1, 1, 3] {
        if workers == 3 {
            service.workers[0].stop().await;
            // Two of them share a core: shards are spread unevenly and end in another order.
            for device in ["cpu:0", "cpu:1", "cpu:0"] {
                service.add_worker(device);
            }
        }
        let id = service.client.submit(&job()).await;
        let result = service.client.succeeded(id).await;
        assert_eq!(workers_of(&service, id).await.len(), workers);
        assert_eq!(result.device_kinds.len(), 1, "{:?}", result.device_kinds);
        assert_eq!(counted_once(&mut service.ledger().await, id).await, 0);
        runs.push((
            sums(&service, id).await,
            result.datasets[0].nll_exact.clone(),
        ));
    }
    assert_eq!(runs[0], runs[1], "the same job twice");
    assert_eq!(runs[0], runs[2], "one worker and three");
    service.finish().await;
}
