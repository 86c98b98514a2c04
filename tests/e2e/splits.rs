//! Micro-batches that do not fit in memory are split, and the results say so.

use std::fs;

use assay_api::ErrorCode::OutOfMemory;
use assay_api::{DocumentRow, JobId, JobResult, JobState};
use assay_testkit::{LIMIT, Roots, eventually, is_running, leave_memory};

use serde_json::{Value, json};

use crate::checkpoint::add_random_llama;
use crate::ledger::counted_once;
use crate::moby_dick::{chapters, jsonl};
use crate::reference::differs_by;
use crate::service::Service;

/// Two devices of one kind.
const DEVICES: &str = "cpu:0,cpu:1";
/// Relative, on a sum of NLLs, between unequal splits.
const SPLIT_TOLERANCE: f64 = 1e-6;
const MODEL: &str = "random";
const DATASET: &str = "chapters.jsonl";
/// No matrix product has fewer rows, so that smaller windows take as much memory.
const WINDOW: usize = 256;
/// Times that the text is in the dataset.
const TIMES: usize = 2;

/// A run of the job: what it gives, and the split depth of each shard.
struct Run {
    result: JobResult,
    sums: Vec<DocumentRow>,
    depths: Vec<u32>,
}

/// Roots with what [`job`] names.
fn roots() -> Roots {
    let roots = Roots::new();
    add_random_llama(&roots, MODEL, 1);
    roots.add_data(DATASET, jsonl(&chapters()).repeat(TIMES));
    roots
}

/// Long enough for its first micro-batches to hold four windows: micro-batches become smaller
/// towards the end of a dataset.
fn job() -> Value {
    json!({
        "model": MODEL,
        "datasets": [DATASET],
        "method": {"window": WINDOW},
        "reuse": false,
    })
}

async fn run(service: &Service) -> Run {
    let id = service.client.submit(&job()).await;
    let (run, in_vain) = finished(service, id).await;
    assert_eq!(in_vain, 0);
    run
}

/// A run, and the attempts of it that were in vain.
async fn finished(service: &Service, id: JobId) -> (Run, i64) {
    let result = service.client.succeeded(id).await;
    let in_vain = counted_once(&mut service.ledger().await, id).await;
    let shards = service.client.shards(id).await;
    let depths: Vec<u32> = shards.iter().map(|shard| shard.split_depth).collect();
    let split = depths.iter().filter(|depth| **depth > 0).count();
    assert_eq!(result.split_shards, split as u64, "{depths:?}");
    let sums = service.client.documents(id, DATASET).await;
    let run = Run {
        result,
        sums,
        depths,
    };
    (run, in_vain)
}

fn assert_near(run: &Run, whole: &Run, what: &str) {
    let rows = (&run.result.datasets[0], &whole.result.datasets[0]);
    assert_eq!(rows.0.scored_tokens, rows.1.scored_tokens, "{what}");
    let difference = differs_by(rows.0.nll.unwrap(), rows.1.nll.unwrap());
    assert!(
        difference < SPLIT_TOLERANCE,
        "{what}: off by {difference:e}"
    );
    for (row, of_whole) in run.sums.iter().zip(&whole.sums) {
        let difference = differs_by(row.nll, of_whole.nll);
        let document = row.index;
        assert!(
            difference < SPLIT_TOLERANCE,
            "{what}: document {document}: {difference:e}"
        );
    }
}

/// Replaces the worker by one with these settings.
async fn replace_worker(service: &mut Service, settings: &[&str]) {
    let worker = service.workers.last();
    if let Some(worker) = worker.filter(|worker| is_running(worker.pid())) {
        worker.stop().await;
    }
    service.add_worker_with(DEVICES, settings);
}

/// The bytes that one window takes, about, from what a worker says that has none.
async fn bytes_of_a_window(service: &mut Service) -> u64 {
    replace_worker(service, &["--memory-budget", "1"]).await;
    let id = service.client.submit(&job()).await;
    let error = service.client.failed(id).await;
    assert_eq!(error.code, OutOfMemory, "{error:?}");
    assert!(error.shard.is_some(), "{error:?}");
    let number = error
        .detail
        .split("takes about ")
        .nth(1)
        .expect("the need is named");
    let megabytes: u64 = number.split(' ').next().unwrap().parse().unwrap();
    for part in [format!("{WINDOW} tokens"), "smaller window".to_owned()] {
        assert!(error.detail.contains(&part), "{error:?}");
    }
    assert!(megabytes > 0, "{error:?}");
    megabytes * 1_000_000
}

#[tokio::test]
async fn a_smaller_budget_splits_and_says_so() {
    let mut service = Service::start(roots()).await;
    service.add_worker(DEVICES);
    let whole = run(&service).await;
    assert_eq!(whole.result.split_shards, 0);
    let window = bytes_of_a_window(&mut service).await;

    // Up to four windows a micro-batch: one at a time, and two.
    let mut deepest = Vec::new();
    for windows in [1, 2] {
        let budget = (window * windows + window / 2).to_string();
        let settings = ["--memory-budget", &budget];
        replace_worker(&mut service, &settings).await;
        let first = run(&service).await;
        assert!(first.result.split_shards > 0, "{:?}", first.depths);
        assert_near(&first, &whole, &budget);
        deepest.push(*first.depths.iter().max().unwrap());
        if windows == 1 {
            // Another worker with the same budget splits alike, to the last bit.
            replace_worker(&mut service, &settings).await;
            let second = run(&service).await;
            assert_eq!((second.depths, second.sums), (first.depths, first.sums));
        }
    }
    assert!(deepest[0] > deepest[1], "{deepest:?}");
    // Given the memory, nothing is split, and the integers are the first ones.
    replace_worker(
        &mut service,
        &["--memory-budget", &(window * 100).to_string()],
    )
    .await;
    let again = run(&service).await;
    assert_eq!((again.result.split_shards, &again.sums), (0, &whole.sums));
    service.finish().await;
}

/// How a job ends on a worker that can get this much memory beyond what it has: its run and the
/// attempts in vain, or none if it fails for want of memory.
async fn run_within(service: &mut Service, settings: &[&str], left: u64) -> Option<(Run, i64)> {
    replace_worker(service, settings).await;
    // Loads the model, and takes next to no memory for one short window.
    let short = json!([{"documents": ["Call me Ishmael."]}]);
    let mut warm = job();
    warm["datasets"] = short;
    service.client.run(&warm).await;
    let worker = service.workers.last().unwrap().pid();
    leave_memory(worker, Some(left));
    let id = service.client.submit(&job()).await;
    let stands = || async {
        let job = service.client.job(id).await;
        (job.state.is_final() || !is_running(worker)).then_some(())
    };
    eventually("the end of the job or of the worker", LIMIT, stands).await;
    if is_running(worker) {
        leave_memory(worker, None);
    } else {
        // oneDNN does not recover, so the worker ends, and another one takes over.
        service.add_worker_with(DEVICES, settings);
    }
    let ended = service.client.ended(id).await;
    if ended.state == JobState::Succeeded {
        return Some(finished(service, id).await);
    }
    let error = ended.error.unwrap();
    assert_eq!(
        error.code, OutOfMemory,
        "{settings:?}: {left} bytes: {error:?}"
    );
    None
}

/// Memory that is not there although the settings say so: an allocation fails.
#[tokio::test]
async fn an_allocation_that_fails_splits_or_is_named() {
    // glibc asks the system for each larger piece of memory, and has none in reserve: an arena of a
    // thread would be 64 MB of addresses.
    let environment = vec![
        ("MALLOC_ARENA_MAX", "1".to_owned()),
        ("MALLOC_MMAP_THRESHOLD_", "65536".to_owned()),
        ("MALLOC_TRIM_THRESHOLD_", "65536".to_owned()),
    ];
    let mut service = Service::start_in(roots(), &[], environment).await;
    service.add_worker(DEVICES);
    let whole = run(&service).await;
    let window = bytes_of_a_window(&mut service).await;
    // Each job maps the weights to take their digest.
    let weights = service.roots.models().join("random/model.safetensors");
    let weights = fs::metadata(weights).unwrap().len();
    // The first worker looks at what it has, the second is told that it has plenty.
    for settings in [&[][..], &["--memory-budget", "1000000000000"]] {
        let mut missed = 0;
        for left in [5 * window, window / 2] {
            let run = run_within(&mut service, settings, weights + left).await;
            let what = format!("{settings:?}: {left} bytes");
            println!("{what}: {:?}", run.as_ref().map(|(run, _)| &run.depths));
            if let Some((run, _)) = &run {
                assert_near(run, &whole, &what);
            }
            missed += u32::from(run.is_none_or(|(run, in_vain)| {
                in_vain > 0 || run.depths.iter().any(|depth| *depth > 0)
            }));
        }
        assert!(missed > 0, "{settings:?}: no memory was missed");
        // With the memory back, all is as it was.
        assert_eq!(run(&service).await.sums, whole.sums);
    }
    service.finish().await;
}
