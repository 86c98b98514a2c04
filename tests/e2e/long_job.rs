//! A job that is long enough to be disturbed.

use std::time::Duration;

use assay_api::{DocumentRow, JobId, JobState};
use assay_testkit::{LIMIT, Roots, eventually};
use serde_json::{Value, json};

use crate::checkpoint::add_random_llama;
use crate::moby_dick::{chapters, jsonl};
use crate::random::Random;
use crate::service::Service;

const MODEL: &str = "random";
const LAYERS: usize = 6;
const DATASET: &str = "chapters.jsonl";

/// A job of some twenty shards that takes seconds.
pub(crate) fn job() -> Value {
    json!({
        "model": MODEL,
        "datasets": [DATASET],
        "method": {"window": 512},
        "reuse": false,
    })
}

/// A job of as many datasets, each a part of the same documents.
pub(crate) fn parts(datasets: u32) -> Value {
    let part = |seed| {
        json!({
            "name": format!("part {seed}"),
            "path": DATASET,
            "sample": {"documents": 6, "seed": seed},
        })
    };
    json!({
        "model": MODEL,
        "datasets": (0..datasets).map(part).collect::<Vec<_>>(),
        "method": {"window": 512},
    })
}

/// Roots with what [`job`] names.
pub(crate) fn roots() -> Roots {
    let roots = Roots::new();
    add_random_llama(&roots, MODEL, LAYERS);
    // Long ones and short ones, so that micro-batches are ragged.
    let mut documents: Vec<String> = chapters();
    documents.truncate(6);
    let lines: Vec<String> = documents[4].lines().map(str::to_owned).collect();
    documents.extend(lines);
    roots.add_data(DATASET, jsonl(&documents));
    roots
}

/// The sums of the documents of [`job`].
pub(crate) async fn sums(service: &Service, job: JobId) -> Vec<DocumentRow> {
    service.client.documents(job, DATASET).await
}

/// Waits for a random moment in the middle of a job whose shards take `shard` on a device.
pub(crate) async fn moment(service: &Service, job: JobId, shard: Duration, random: &mut Random) {
    assert!(
        try_moment(service, job, shard, random).await,
        "the job is too short to be disturbed"
    );
}

/// Waits for a random moment in the middle of what is left of a job whose shards take `shard` on a
/// device. False if the job has ended before.
pub(crate) async fn try_moment(
    service: &Service,
    job: JobId,
    shard: Duration,
    random: &mut Random,
) -> bool {
    let part = 0.05 + 0.5 * random.unit();
    let mut wanted = None;
    let reached = eventually("the middle of the job", LIMIT, async || {
        let job = service.client.job(job).await;
        if job.state.is_final() {
            return Some(false);
        }
        let planned = job.progress.planned_tokens? as f64;
        let scored = job.progress.scored_tokens as f64;
        let wanted = *wanted.get_or_insert(scored + part * (planned - scored));
        (scored >= wanted).then_some(true)
    })
    .await;
    // A moment within a shard is not something to wait for, it is a time.
    let within = shard.mul_f64(random.unit());
    tokio::time::sleep(within).await;
    let state = service.client.job(job).await.state;
    if !reached || state != JobState::Running {
        return false;
    }
    println!(
        "{:.0} % of the rest of the job and {within:?} are over",
        part * 100.0
    );
    true
}
