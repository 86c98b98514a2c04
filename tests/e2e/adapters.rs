//! LoRA adapters beside a checkpoint; what they compute, the decoder's tests hold against PEFT.

use assay_api::{ErrorCode, JobResult};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::client::refusal;
use crate::reference::{expected, text};
use crate::service::Service;

const MODEL: &str = "llama_gqa";

fn roots() -> Roots {
    let roots = Roots::new();
    for name in [MODEL, "adapters/llama", "adapters/rslora", "adapters/dora"] {
        roots.add_model(name);
    }
    roots.add_model("adapters/other_base");
    roots.add_data("long.txt", text(&expected(MODEL), "long"));
    roots
}

fn job(model: &Value) -> Value {
    json!({"model": model, "datasets": ["long.txt"], "method": {"window": 64}})
}

async fn run(service: &Service, model: &Value) -> JobResult {
    service.client.run(&job(model)).await
}

#[tokio::test]
async fn an_adapter_is_part_of_what_is_scored() {
    let mut service = Service::start(roots()).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let base = run(&service, &json!({"path": MODEL})).await;
    let with = |adapter: &str| json!({"path": MODEL, "adapter": adapter});
    let adapted = run(&service, &with("adapters/llama")).await;
    let other = run(&service, &with("adapters/rslora")).await;

    let facts = |result: &JobResult| result.model.clone().unwrap();
    assert_eq!(facts(&base).adapter, None);
    assert_eq!(facts(&adapted).adapter.as_deref(), Some("adapters/llama"));
    assert_eq!(facts(&adapted).path, MODEL);
    let digests = [&base, &adapted, &other].map(|result| facts(result).digest);
    assert!(
        digests[0] != digests[1] && digests[1] != digests[2],
        "{digests:?}"
    );
    let totals = [&base, &adapted, &other].map(|result| result.datasets[0].nll.unwrap());
    for (left, right) in [(0, 1), (1, 2), (0, 2)] {
        let difference = (totals[left] / totals[right] - 1.0).abs();
        assert!(difference > 1e-3, "{totals:?}");
    }
    assert_eq!(
        base.datasets[0].scored_tokens,
        adapted.datasets[0].scored_tokens
    );

    // The same adapter is the same numbers, and another is not.
    let again = run(&service, &with("adapters/llama")).await;
    assert!(again.datasets[0].reused_from.is_some());
    assert_eq!(again.datasets[0].nll_exact, adapted.datasets[0].nll_exact);
    assert_eq!(other.datasets[0].reused_from, None);

    let mut anew = job(&with("adapters/llama"));
    anew["reuse"] = json!(false);
    let anew = service.client.run(&anew).await;
    assert_eq!(anew.datasets[0].nll_exact, adapted.datasets[0].nll_exact);
    service.finish().await;
}

#[tokio::test]
async fn an_adapter_that_cannot_be_added_is_refused_when_the_job_is_posted() {
    let service = Service::start(roots()).await;
    for (adapter, code, words) in [
        (
            "adapters/dora",
            ErrorCode::ArchitectureUnsupported,
            "`use_dora` is true",
        ),
        (
            "adapters/other_base",
            ErrorCode::TensorMismatch,
            "another base",
        ),
        (
            "adapters/none",
            ErrorCode::CheckpointUnreadable,
            "adapters/none",
        ),
        ("../llama", ErrorCode::PathOutsideRoot, "../llama"),
        (
            MODEL,
            ErrorCode::CheckpointUnreadable,
            "adapter_config.json",
        ),
    ] {
        let body = job(&json!({"path": MODEL, "adapter": adapter}));
        let (status, found, fields, detail) = refusal(service.client.post(&body).await).await;
        assert_eq!((status, found), (422, code), "{adapter}: {detail}");
        assert_eq!(fields, ["model.adapter"], "{detail}");
        assert!(detail.contains(words), "{adapter}: {detail}");
    }
    let alone = job(&json!("adapters/llama"));
    let (_, _, _, detail) = refusal(service.client.post(&alone).await).await;
    assert!(detail.contains("it is an adapter"), "{detail}");
    service.finish().await;
}
