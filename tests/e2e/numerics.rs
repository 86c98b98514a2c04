//! Jobs with adaptive numerics: each device computes in the dtype that it is fast in, and the
//! result says what that changed.

use assay_api::{Dtype, JobResult};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::ledger::counted_once;
use crate::moby_dick::{chapters, jsonl};
use crate::service::Service;

const MODEL: &str = "bf16_llama";
const DATASET: &str = "chapters.jsonl";
const FAST: &[&str] = &["--fast-dtypes", "float32,bfloat16"];
const SLOW: &[&str] = &["--fast-dtypes", "float32"];

fn job(changes: &Value) -> Value {
    let mut job = json!({
        "model": MODEL,
        "datasets": [DATASET],
        "method": {"window": 64},
        "dtype": "bfloat16",
        "reuse": false,
        "baseline": "skip",
    });
    for (field, value) in changes.as_object().expect("an object") {
        job[field] = value.clone();
    }
    job
}

async fn run(service: &Service, changes: &Value) -> JobResult {
    let result = service.client.run(&job(changes)).await;
    counted_once(&mut service.ledger().await, result.job_id).await;
    result
}

fn units(result: &JobResult) -> i128 {
    let units = result.datasets[0].nll_exact.as_deref();
    units.expect("the job is complete").parse().unwrap()
}

fn tokens(result: &JobResult, dtype: Dtype) -> u64 {
    let shares = &result.precision.as_ref().expect("it is adaptive").shares;
    let of_dtype = shares.iter().filter(|share| share.dtype == dtype);
    of_dtype.map(|share| share.tokens).sum()
}

#[tokio::test]
async fn devices_compute_in_what_they_are_fast_in() {
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data(DATASET, jsonl(&chapters()[..4]));
    let mut service = Service::start(roots).await;
    let adaptive = json!({"numerics": "adaptive"});
    // One shard, for no micro-batch is made smaller than 512 tokens.
    let text: String = chapters()[0].chars().take(400).collect();
    let short = json!({"numerics": "adaptive", "datasets": [{"documents": [text]}]});
    let short_uniform = json!({"datasets": short["datasets"]});

    service.add_worker_with("cpu:0", FAST);
    let bfloat16 = run(&service, &json!({})).await;
    let float32 = run(&service, &json!({"dtype": "float32"})).await;
    assert_ne!(units(&bfloat16), units(&float32));
    assert_eq!(bfloat16.precision, None);
    let short_bfloat16 = run(&service, &short_uniform).await;
    // A device that is fast in the job's dtype computes in it.
    let of_fast = run(&service, &adaptive).await;
    assert_eq!(units(&of_fast), units(&bfloat16));
    let all = bfloat16.datasets[0].scored_tokens;
    assert_eq!(tokens(&of_fast, Dtype::Bfloat16), all);
    assert_eq!(of_fast.precision.unwrap().effect, None);
    service.workers[0].stop().await;

    service.add_worker_with("cpu:0", SLOW);
    let of_slow = run(&service, &adaptive).await;
    assert_eq!(units(&of_slow), units(&float32));
    assert_eq!(tokens(&of_slow, Dtype::Float32), all);
    // A uniform job is not touched by what the worker is fast in.
    let uniform = run(&service, &json!({})).await;
    assert_eq!(units(&uniform), units(&bfloat16));

    // Where all of it was scored in both, the effect is no estimate.
    let of_short = run(&service, &short).await;
    let effect = of_short.precision.as_ref().and_then(|p| p.effect);
    let effect = effect.expect("it was scored in both");
    let counted = of_short.datasets[0].scored_tokens;
    assert_eq!(effect.compared_tokens, counted);
    let apart = of_short.datasets[0].nll.unwrap() - short_bfloat16.datasets[0].nll.unwrap();
    let apart = apart / counted as f64;
    assert!(apart != 0.0);
    assert!(
        (effect.nll_per_token - apart).abs() < 1e-8,
        "{effect:?}, {apart}"
    );
    assert!((effect.perplexity_factor - apart.exp()).abs() < 1e-8);
    assert!(effect.standard_error.unwrap() > 0.0);

    // Both at once, as fast as each other: each micro-batch takes its time.
    service.workers[1].stop().await;
    for (device, dtypes) in [("cpu:0", SLOW), ("cpu:1", FAST)] {
        let slowed = [dtypes, &["--fault", "delay=0.05"]].concat();
        service.add_worker_with(device, &slowed);
    }
    service.row_of(2).await;
    service.row_of(3).await;
    let mixed = run(&service, &adaptive).await;
    let (low, high) = (
        tokens(&mixed, Dtype::Bfloat16),
        tokens(&mixed, Dtype::Float32),
    );
    assert_eq!(low + high, all);
    assert!(low > 0 && high > 0, "{:?}", mixed.precision);
    println!(
        "{low} tokens in bfloat16, {high} in float32: {:?}",
        mixed.precision
    );
    let difference = units(&mixed).abs_diff(units(&bfloat16)) as f64;
    assert!(difference < 5e-3 * units(&bfloat16) as f64);
    service.finish().await;
}

/// What is not given is measured, and stays so while the worker runs.
#[tokio::test]
async fn a_worker_finds_out_what_it_is_fast_in() {
    let roots = Roots::new();
    roots.add_model(MODEL);
    roots.add_data(DATASET, jsonl(&chapters()[..1]));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let mut found = Vec::new();
    for _ in 0..2 {
        let result = run(&service, &json!({"numerics": "adaptive"})).await;
        let all = result.datasets[0].scored_tokens;
        let counted = [Dtype::Bfloat16, Dtype::Float32].map(|dtype| tokens(&result, dtype));
        assert!(counted == [all, 0] || counted == [0, all], "{counted:?}");
        found.push(counted);
        // The bits are those of the dtype that it says.
        let dtype = if counted[0] > 0 {
            "bfloat16"
        } else {
            "float32"
        };
        let uniform = run(&service, &json!({"dtype": dtype})).await;
        assert_eq!(units(&result), units(&uniform));
    }
    assert_eq!(found[0], found[1]);
    service.finish().await;
}
