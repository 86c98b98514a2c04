//! The fixtures against what transformers computes in float32 (fixtures/README.md says how).

use assay_api::{DatasetResult, JobResult};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::reference::{FIXTURES, TOLERANCE, differs_by, expected, text};
use crate::service::Service;

const WINDOW: u32 = 64;

/// float32 also for the checkpoint in bfloat16, as the reference values are.
fn job(model: &str, datasets: &Value) -> Value {
    json!({
        "model": model,
        "datasets": datasets,
        "method": {"window": WINDOW},
        "dtype": "float32",
    })
}

fn check_measures(name: &str, dataset: &DatasetResult, reference: &Value) {
    let of = |field: &str| reference[field].as_f64().unwrap();
    let count = |field: &str| reference[field].as_u64();
    assert_eq!(dataset.words, count("words"), "{name}");
    assert_eq!(dataset.bytes, count("bytes"), "{name}");
    assert_eq!(dataset.tokens, count("scored_tokens"), "{name}");
    assert_eq!(
        Some(dataset.scored_tokens),
        count("scored_tokens"),
        "{name}"
    );
    let sums = [
        ("nll_sum", dataset.nll),
        ("bits_per_byte", dataset.bits_per_byte),
    ];
    let perplexities = [
        ("ppl", dataset.perplexity),
        ("word_perplexity", dataset.word_perplexity),
        ("byte_perplexity", dataset.byte_perplexity),
    ]
    // Of a perplexity it is the logarithm that is a mean of NLLs.
    .map(|(field, value)| (field, value.map(f64::ln), of(field).ln()));
    let all = sums.map(|(field, value)| (field, value, of(field)));
    for (field, value, reference) in all.into_iter().chain(perplexities) {
        let value = value.unwrap_or_else(|| panic!("{name}: no {field}"));
        let difference = differs_by(value, reference);
        assert!(
            difference < TOLERANCE,
            "{name}: {field} is off by {difference:e}"
        );
    }
}

/// The other ways to window the text come close, and are not what was computed.
fn check_near_misses(name: &str, dataset: &DatasetResult, reference: &Value, adds_bos: bool) {
    let nll = dataset.nll.unwrap();
    let short_last = reference["rolling_bos_short_last"]["nll_sum"]
        .as_f64()
        .unwrap();
    assert!(differs_by(nll, short_last) > 100.0 * TOLERANCE, "{name}");
    let double_bos = &reference["rolling_bos_double_bos"];
    if adds_bos {
        let sum = double_bos["nll_sum"].as_f64().unwrap();
        assert!(differs_by(nll, sum) > 100.0 * TOLERANCE, "{name}");
        assert_ne!(
            Some(dataset.scored_tokens),
            double_bos["scored_tokens"].as_u64()
        );
    }
}

fn check_tokens(name: &str, result: &JobResult, expected: &Value) {
    let tokenizer = result.tokenizer.as_ref().unwrap();
    let prefix = &expected["windows"]["ppl"]["rolling_bos"]["prefix_token"];
    let ids = expected["tokens"]["long"]["without_special"]
        .as_array()
        .unwrap();
    let first: Vec<u64> = [prefix]
        .into_iter()
        .chain(ids)
        .take(8)
        .map(|id| id.as_u64().unwrap())
        .collect();
    let seen: Vec<u64> = tokenizer
        .first_token_ids
        .iter()
        .copied()
        .map(u64::from)
        .collect();
    assert_eq!(seen, first, "{name}");
    assert_eq!(
        Some(tokenizer.adds_bos),
        expected["tokenizer"]["adds_bos"].as_bool()
    );
}

#[tokio::test]
async fn rolling_totals_are_those_of_transformers() {
    let roots = Roots::new();
    for name in FIXTURES {
        roots.add_model(name);
        roots.add_data(&format!("{name}.txt"), text(&expected(name), "long"));
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    for name in FIXTURES {
        let expected = expected(name);
        let result = service
            .client
            .run(&job(name, &json!([format!("{name}.txt")])))
            .await;
        let reference = &expected["windows"]["ppl"];
        check_tokens(name, &result, &expected);
        check_measures(name, &result.datasets[0], &reference["rolling_bos"]);
        let adds_bos = result.tokenizer.unwrap().adds_bos;
        check_near_misses(name, &result.datasets[0], reference, adds_bos);
    }
    service.finish().await;
}

#[tokio::test]
async fn documents_are_scored_each_alone() {
    const TEXTS: [&str; 3] = ["short", "long", "mixed"];
    let roots = Roots::new();
    for name in FIXTURES {
        roots.add_model(name);
        let expected = expected(name);
        let lines = TEXTS.map(|which| json!({"text": text(&expected, which)}).to_string());
        roots.add_data(&format!("{name}.jsonl"), lines.join("\n"));
        for which in TEXTS {
            roots.add_data(&format!("{name}-{which}.txt"), text(&expected, which));
        }
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    for name in FIXTURES {
        let file = format!("{name}.jsonl");
        let together = service.client.submit(&job(name, &json!([file]))).await;
        let alone = TEXTS.map(|which| format!("{name}-{which}.txt"));
        let alone = service.client.run(&job(name, &json!(alone))).await;
        service.client.succeeded(together).await;
        let documents = service.client.documents(together, &file).await;
        assert_eq!(documents.len(), TEXTS.len(), "{name}");
        for ((document, single), which) in documents.iter().zip(&alone.datasets).zip(TEXTS) {
            let counts = (document.tokens, document.bytes, document.words);
            let of_single = (single.tokens, single.bytes, single.words);
            assert_eq!(
                (Some(counts.0), Some(counts.1), Some(counts.2)),
                of_single,
                "{name} {which}"
            );
            assert_eq!(document.scored_tokens, document.tokens, "{name} {which}");
            // Other micro-batches, so other roundings; a token that saw a neighbour's would be
            // off by far more.
            let difference = differs_by(document.nll, single.nll.unwrap());
            assert!(
                difference < TOLERANCE,
                "{name} {which}: off by {difference:e}"
            );
        }
    }
    service.finish().await;
}
