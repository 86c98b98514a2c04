//! Gates on the demo checkpoint: copies of it with no noise, much and a little.

use std::fs;
use std::path::PathBuf;

use assay_api::{DatasetComparison, GateResult, JobId, Verdict};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::moby_dick::{jsonl, paragraphs};
use crate::noise::copy_noisy_gguf;
use crate::service::Service;

const MODEL: &str = "model.gguf";
const COPY: &str = "copy.gguf";
const WORSE: &str = "worse.gguf";
const NEARLY: &str = "nearly.gguf";
const MANY: &str = "many.jsonl";
const FEW: &str = "few.jsonl";
/// 1 % of perplexity.
const MAX_INCREASE: f64 = 0.01;

fn job(model: &str, datasets: &Value) -> Value {
    json!({"model": model, "datasets": datasets, "method": {"window": 128}, "reuse": false})
}

/// Runs a job that is held against another one in one of its datasets.
async fn judged(
    service: &Service,
    model: &str,
    dataset: &str,
    baseline: JobId,
) -> (GateResult, DatasetComparison) {
    let mut job = job(model, &json!([dataset]));
    job["gate"] = json!({"baseline": baseline, "max_increase": MAX_INCREASE});
    let id = service.client.done(&job).await;
    let result = service.client.gate(id).await;
    let datasets = &result.comparison.as_ref().unwrap().datasets;
    assert_eq!(datasets.len(), 1, "{datasets:?}");
    let row = datasets[0].clone();
    println!("{model}: {:?}: {}", result.verdict, result.reason);
    assert_eq!(row.verdict, result.verdict);
    (result, row)
}

/// Needs the checkpoint at `ASSAY_DEMO_MODEL`, which `make test` fetches.
#[tokio::test]
async fn noise_in_the_weights_decides() {
    let Some(model) = std::env::var_os("ASSAY_DEMO_MODEL").map(PathBuf::from) else {
        println!("skipped: ASSAY_DEMO_MODEL is not set");
        return;
    };
    let roots = Roots::new();
    for copy in [MODEL, COPY] {
        fs::copy(&model, roots.models().join(copy)).expect("ASSAY_DEMO_MODEL can be read");
    }
    copy_noisy_gguf(&model, &roots.models().join(WORSE), 0.03);
    copy_noisy_gguf(&model, &roots.models().join(NEARLY), 0.003);
    roots.add_data(MANY, jsonl(&paragraphs(30, 300)));
    roots.add_data(FEW, jsonl(&paragraphs(8, 150)));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0-1");
    let baseline = job(MODEL, &json!([MANY, FEW]));
    let baseline = service.client.done(&baseline).await;

    // The same weights, computed again: equal to the last unit of every document.
    let (same, row) = judged(&service, COPY, MANY, baseline).await;
    assert_eq!(same.verdict, Some(Verdict::Pass), "{same:?}");
    let numbers = &row.difference;
    assert_eq!(numbers.nll_difference_exact, "0");
    assert_eq!(numbers.baseline_mean_nll, numbers.candidate_mean_nll);
    let zeros = [
        numbers.difference,
        numbers.standard_error,
        numbers.confidence_95,
    ];
    assert_eq!(zeros, [Some(0.0); 3]);
    assert_eq!(
        (numbers.perplexity_ratio, numbers.sign_test_p),
        (Some(1.0), 1.0)
    );
    assert_eq!((numbers.worse, numbers.better), (0, 0));
    assert_eq!((numbers.documents, numbers.equal), (30, 30));
    assert!(row.worst.is_empty() && row.best.is_empty(), "{row:?}");

    // Much noise: every document is worse, beyond doubt.
    let (worse, row) = judged(&service, WORSE, MANY, baseline).await;
    assert_eq!(worse.verdict, Some(Verdict::Fail), "{worse:?}");
    let numbers = &row.difference;
    assert_eq!((numbers.worse, numbers.better), (30, 0), "{numbers:?}");
    assert!(numbers.perplexity_ratio.unwrap() > MAX_INCREASE.exp());
    assert_eq!(row.worst.len(), 10);

    // A little, on little text: the interval holds the largest increase that passes.
    let (nearly, row) = judged(&service, NEARLY, FEW, baseline).await;
    assert_eq!(nearly.verdict, Some(Verdict::Inconclusive), "{nearly:?}");
    let numbers = &row.difference;
    let (difference, half) = (numbers.difference.unwrap(), numbers.confidence_95.unwrap());
    assert!(
        (difference - half..difference + half).contains(&MAX_INCREASE),
        "{numbers:?}"
    );
    service.finish().await;
}
