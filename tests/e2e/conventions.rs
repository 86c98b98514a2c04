//! Every convention against transformers, and joined documents against one text.

use assay_api::{Convention, DatasetResult, JobId};
use assay_testkit::Roots;
use serde_json::{Value, json};

use crate::checkpoint::Damaged;
use crate::reference::{FIXTURES, TOLERANCE, assert_close, differs_by, expected, text};
use crate::service::Service;

const TEXTS: [&str; 3] = ["short", "long", "mixed"];

/// Methods, and what `expected.json` calls them: with another method close by that must not be
/// what was computed. A tokenizer that adds no BOS makes some of them the same, or not possible.
#[rustfmt::skip] // one case a line
fn methods(adds_bos: bool) -> Vec<(Value, &'static str, &'static str)> {
    let near = |name: &'static str| if adds_bos { name } else { "blocks" };
    let mut methods = vec![
        (json!({"convention": "rolling", "window": 64}), "rolling_bos", "rolling_bos_short_last"),
        (json!({"convention": "blocks", "window": 64, "tail": "score"}), "blocks", "blocks_drop_tail"),
        (json!({"convention": "blocks", "window": 64}), "blocks_drop_tail", "blocks"),
        (json!({"convention": "strided", "window": 64, "stride": 16}), "strided", "strided_full_last"),
        (json!({"convention": "llamacpp", "window": 64}), "llamacpp", near("llamacpp_no_bos_overwrite")),
    ];
    if adds_bos {
        methods.push((json!({"convention": "strided", "window": 64, "stride": 16, "bos": "always"}), "strided", "rolling_bos"));
    }
    methods
}

/// float32 also for the checkpoint in bfloat16, as the reference values are.
fn job(model: &str, datasets: Value, methods: Value) -> Value {
    let mut job = json!({"model": model, "dtype": "float32", "reuse": false});
    job["datasets"] = datasets;
    job["method"] = methods;
    job
}

fn check(row: &DatasetResult, reference: &Value, what: &str) {
    let scored = reference["scored_tokens"].as_u64();
    assert_eq!(Some(row.scored_tokens), scored, "{what}");
    let sum = reference.get("nll_sum").unwrap_or(&reference["nll"]);
    assert_close(row.nll.unwrap(), sum.as_f64().unwrap(), what);
    let mean = row.nll.unwrap() / row.scored_tokens as f64;
    assert!((row.perplexity.unwrap().ln() - mean).abs() < 1e-9, "{what}");
}

/// Word and byte measures only where every token is scored.
fn check_measures(row: &DatasetResult, what: &str) {
    let measures = [row.word_perplexity, row.byte_perplexity, row.bits_per_byte];
    let all = row.method.convention == Convention::Rolling;
    assert!(measures.iter().all(|m| m.is_some() == all), "{what}");
}

#[tokio::test]
async fn every_convention_is_that_of_transformers() {
    let roots = Roots::new();
    for name in FIXTURES {
        roots.add_model(name);
        roots.add_data(&format!("{name}.txt"), text(&expected(name), "long"));
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    let mut told_apart = 0;
    for name in FIXTURES {
        let expected = expected(name);
        let reference = &expected["windows"]["ppl"];
        let adds_bos = expected["tokenizer"]["adds_bos"].as_bool().unwrap();
        let methods = methods(adds_bos);
        let list: Value = methods.iter().map(|(method, ..)| method.clone()).collect();
        let job = job(name, json!([format!("{name}.txt")]), list.clone());
        let result = service.client.run(&job).await;
        // The methods as they were asked for, in that order, each with what it left out.
        let resolved = serde_json::to_value(&result.method).unwrap();
        assert_eq!(resolved.as_array().unwrap().len(), methods.len());
        assert_eq!(result.datasets.len(), methods.len());
        for (row, (asked, which, near)) in result.datasets.iter().zip(&methods) {
            let what = format!("{name} {which}");
            let method = serde_json::to_value(&row.method).unwrap();
            for (option, value) in asked.as_object().unwrap() {
                assert_eq!(&method[option], value, "{what}: {method}");
            }
            check(row, &reference[which], &what);
            check_measures(row, &what);
            // A sliding window may leave nothing by which the reference tells the two apart.
            let of = |which: &str| reference[which]["nll_sum"].as_f64().unwrap();
            let (own, near) = (of(which), of(near));
            if differs_by(near, own) > 4.0 * TOLERANCE {
                let difference = differs_by(row.nll.unwrap(), near);
                assert!(difference > 2.0 * TOLERANCE, "{what}: {difference:e}");
                told_apart += 1;
            }
        }
        if adds_bos {
            let exact = |row: usize| &result.datasets[row].nll_exact;
            let what = "auto is what the tokenizer does";
            assert_eq!(exact(3), exact(5), "{name}: {what}");
        }
    }
    // All but one of some five for each of the fixtures.
    assert!(told_apart > 5 * FIXTURES.len() - 5, "{told_apart}");
    service.finish().await;
}

/// The cases of reference/conventions.py: BOS forced and forbidden, odd sizes, other joins.
#[tokio::test]
async fn options_are_those_of_the_reference() {
    let reference: Value =
        serde_json::from_str(include_str!("../reference/conventions.json")).unwrap();
    let cases = reference["cases"].as_array().unwrap();
    let roots = Roots::new();
    for name in ["llama_gqa", "llama_tied"] {
        roots.add_model(name);
        let expected = expected(name);
        roots.add_data(&format!("{name}-1.txt"), text(&expected, "long"));
        let lines = TEXTS.map(|which| json!({"text": text(&expected, which)}).to_string());
        roots.add_data(&format!("{name}-3.jsonl"), lines.join("\n"));
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    service.add_worker("cpu:1");
    let mut jobs = Vec::new();
    for case in cases {
        let model = case["model"].as_str().unwrap();
        let data = match case["documents"].as_array().unwrap().len() {
            1 => format!("{model}-1.txt"),
            _ => format!("{model}-3.jsonl"),
        };
        let job = job(model, json!([data]), case["method"].clone());
        jobs.push(service.client.submit(&job).await);
    }
    for (id, case) in jobs.into_iter().zip(cases) {
        let result = service.client.succeeded(id).await;
        let what = format!("{} {}", case["model"], case["method"]);
        check(&result.datasets[0], case, &what);
    }
    service.finish().await;
}

/// The integers of a job's rows.
async fn exact(service: &Service, id: JobId) -> Vec<(u64, Option<String>)> {
    let rows = service.client.succeeded(id).await.datasets;
    rows.into_iter()
        .map(|row| (row.scored_tokens, row.nll_exact))
        .collect()
}

fn joined_methods(join: Option<&str>) -> Value {
    let mut methods = json!([
        {"convention": "blocks", "window": 48},
        {"convention": "blocks", "window": 48, "tail": "score", "bos": "never"},
        {"convention": "strided", "window": 48},
        {"convention": "strided", "window": 48, "stride": 7},
        {"convention": "llamacpp", "window": 48},
    ]);
    if let Some(join) = join {
        for method in methods.as_array_mut().unwrap() {
            method["join"] = json!(join);
        }
    }
    methods
}

#[tokio::test]
async fn joined_documents_are_one_text() {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    let expected = expected("llama_gqa");
    let texts: Vec<String> = ["short", "long", "mixed", "short"]
        .map(|which| text(&expected, which))
        .into();
    // Documents without text are part of the joined text all the same.
    let texts = [vec![String::new()], texts, vec![String::new()]].concat();
    let lines: Vec<_> = texts
        .iter()
        .map(|text| json!({"text": text}).to_string())
        .collect();
    roots.add_data("documents.jsonl", lines.join("\n"));
    for (index, join) in ["\n\n", "", "<s>🙂"].iter().enumerate() {
        roots.add_data(&format!("text-{index}.txt"), texts.join(join));
    }
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    for (index, join) in [None, Some(""), Some("<s>🙂")].into_iter().enumerate() {
        let methods = joined_methods(join);
        let documents = job("llama_gqa", json!(["documents.jsonl"]), methods.clone());
        let documents = service.client.submit(&documents).await;
        let whole = job("llama_gqa", json!([format!("text-{index}.txt")]), methods);
        let whole = service.client.submit(&whole).await;
        let sums = exact(&service, documents).await;
        assert_eq!(sums, exact(&service, whole).await, "joined by {join:?}");
        for (method, (scored, sum)) in sums.into_iter().enumerate() {
            let rows = service
                .client
                .rows(documents, "documents.jsonl", method)
                .await;
            assert_eq!(rows.len(), texts.len());
            let total: i128 = rows
                .iter()
                .map(|row| row.nll_exact.parse::<i128>().unwrap())
                .sum();
            assert_eq!(Some(total.to_string()), sum, "method {method}");
            assert_eq!(
                rows.iter().map(|row| row.scored_tokens).sum::<u64>(),
                scored
            );
        }
    }
    service.finish().await;
}

/// Without a post-processor, `auto` puts no BOS in front.
#[tokio::test]
async fn a_tokenizer_that_adds_no_bos_gets_none() {
    let roots = Roots::new();
    let model = roots.add_model("llama_gqa");
    Damaged(&model).set("tokenizer.json", "post_processor", Value::Null);
    roots.add_data("long.txt", text(&expected("llama_gqa"), "long"));
    let mut service = Service::start(roots).await;
    service.add_worker("cpu:0");
    for convention in ["blocks", "strided", "llamacpp"] {
        let methods: Value = ["auto", "never", "always"]
            .map(|bos| json!({"convention": convention, "window": 64, "bos": bos}))
            .into_iter()
            .collect();
        let job = job("llama_gqa", json!(["long.txt"]), methods);
        let result = service.client.run(&job).await;
        assert!(!result.tokenizer.unwrap().adds_bos);
        let rows = &result.datasets;
        assert_eq!(rows[0].nll_exact, rows[1].nll_exact, "{convention}");
        assert_ne!(rows[1].nll_exact, rows[2].nll_exact, "{convention}");
        // The text has 713 tokens: a BOS makes 714 positions, in 11 full blocks either way.
        let more = rows[2].scored_tokens - rows[1].scored_tokens;
        assert_eq!(more, u64::from(convention == "strided"), "{convention}");
    }
    service.finish().await;
}
