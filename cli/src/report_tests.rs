use assay_api::{Convention, Dtype, Method, ModelFacts, OneOrMany, Performance};

use super::*;
use crate::output::columns;

fn dataset(name: &str) -> DatasetResult {
    DatasetResult {
        name: name.to_owned(),
        method: Method::rolling(2048),
        reused_from: None,
        digest: Some("sha256:00".to_owned()),
        documents: Some(1),
        unscored_documents: Some(0),
        bytes: Some(200_000),
        words: Some(36_000),
        tokens: Some(51_234),
        scored_tokens: 51_234,
        nll: Some(160_000.0),
        nll_exact: Some("687194767360000".to_owned()),
        perplexity: Some(22.709_12),
        word_perplexity: Some(85.1),
        byte_perplexity: Some(2.2),
        bits_per_byte: Some(1.154_6),
        macro_perplexity: Some(22.7),
        standard_error: Some(0.031_25),
        confidence_95: Some(0.0612),
        overflow: false,
        seconds: 41.5,
        tokens_per_second: Some(1234.6),
        groups: Vec::new(),
    }
}

pub(crate) fn result(datasets: Vec<DatasetResult>) -> JobResult {
    JobResult {
        job_id: uuid::Uuid::nil(),
        complete: true,
        model: Some(ModelFacts {
            path: "tiny.gguf".to_owned(),
            adapter: None,
            family: "llama".to_owned(),
            parameters: 134_515_008,
            digest: "sha256:11".to_owned(),
        }),
        tokenizer: None,
        method: OneOrMany::One(Method::rolling(2048)),
        dtype: Dtype::Float32,
        precision: None,
        device_kinds: vec![
            "cpu/AuthenticAMD-AVX512-avx512_bf16/threads-1/libtorch-2.11.0/assay-0.1.0".to_owned(),
        ],
        version: "0.1.0".to_owned(),
        numerics_version: 1,
        datasets,
        split_shards: 0,
        audited: 0.0,
        performance: Performance::default(),
        warnings: vec!["one document: 50 spans are the clusters".to_owned()],
    }
}

fn blocks() -> Method {
    Method {
        convention: Convention::Blocks,
        ..Method::rolling(1024)
    }
}

fn group(name: &str) -> GroupResult {
    GroupResult {
        name: name.to_owned(),
        documents: 7,
        scored_tokens: 1000,
        nll: 2000.0,
        nll_exact: "1".to_owned(),
        perplexity: Some(7.389),
        macro_perplexity: None,
        standard_error: None,
        confidence_95: None,
    }
}

fn fits(text: &str, width: usize) {
    assert!(
        text.lines().all(|line| columns(line) <= width),
        "wider than {width}:\n{text}"
    );
}

#[test]
fn a_result_is_a_table_what_it_depends_on_and_its_warnings() {
    let text = render(&[result(vec![dataset("moby.txt")])], Some(80));
    fits(&text, 80);
    assert_eq!(
        text,
        "\
┌──────────┬────────┬────────────┬────────────┬──────────┬──────────┬──────────┐
│ dataset  ┆ tokens ┆ perplexity ┆       word ┆ bits per ┆ standard ┆ tokens/s │
│          ┆        ┆            ┆ perplexity ┆     byte ┆    error ┆          │
╞══════════╪════════╪════════════╪════════════╪══════════╪══════════╪══════════╡
│ moby.txt ┆ 51,234 ┆    22.7091 ┆    85.1000 ┆   1.1546 ┆   0.0312 ┆    1,235 │
└──────────┴────────┴────────────┴────────────┴──────────┴──────────┴──────────┘
not shown: documents; a wider terminal or --json shows them
model    tiny.gguf (llama, 134,515,008 parameters), computed in float32
method   rolling, window 2048
device   cpu/AuthenticAMD-AVX512-avx512_bf16/threads-1/libtorch-2.11.0/
         assay-0.1.0
version  assay 0.1.0, numerics_version 1
note     standard errors are those of the mean NLL, in nats per token
warning: one document: 50 spans are the clusters"
    );
}

#[test]
fn a_wide_terminal_shows_all_columns_and_a_file_too() {
    let result = result(vec![dataset("moby.txt")]);
    for width in [Some(140), None] {
        let text = render(std::slice::from_ref(&result), width);
        for header in ["documents", "word perplexity", "tokens/s"] {
            assert!(text.contains(header), "{text}");
        }
        assert!(!text.contains("not shown"), "{text}");
    }
}

#[test]
fn methods_and_groups_have_rows_of_their_own() {
    let mut first = dataset("a/rather/long/path/of/a/dataset.jsonl");
    first.groups = vec![group("en"), group("de")];
    let mut second = dataset("a/rather/long/path/of/a/dataset.jsonl");
    second.method = blocks();
    second.word_perplexity = None;
    second.bits_per_byte = None;
    let mut result = result(vec![first, second]);
    result.method = OneOrMany::Many(vec![Method::rolling(2048), blocks()]);
    let text = render(&[result.clone()], Some(80));
    println!("{text}");
    fits(&text, 80);
    for shown in [
        "rolling 2048",
        "blocks 1024",
        "└ en",
        "0: rolling, window 2048",
        "7.3890",
    ] {
        assert!(text.contains(shown), "{shown}:\n{text}");
    }
    fits(&render(&[result], Some(60)), 60);
}

#[test]
fn the_models_of_several_jobs_have_a_column() {
    let mut other = result(vec![dataset("moby.txt")]);
    other.model.as_mut().unwrap().path = "other.gguf".to_owned();
    let text = render(&[result(vec![dataset("moby.txt")]), other], Some(80));
    println!("{text}");
    fits(&text, 80);
    assert!(text.contains("│ other.gguf"), "{text}");
}

#[test]
fn numbers_of_another_job_are_said_to_be() {
    let mut reused = dataset("moby.txt");
    reused.reused_from = Some(uuid::Uuid::nil());
    let mut result = result(vec![reused]);
    result.split_shards = 2;
    let text = render(&[result], None);
    let line = format!("reused   moby.txt is of job {}", uuid::Uuid::nil());
    assert!(text.contains(&line), "{text}");
    assert!(
        text.contains("2 shards were computed in smaller parts"),
        "{text}"
    );
}

#[test]
fn what_is_not_known_is_a_dash_and_an_overflow_says_so() {
    let unknown = DatasetResult {
        documents: None,
        perplexity: None,
        word_perplexity: None,
        bits_per_byte: None,
        standard_error: None,
        tokens_per_second: None,
        scored_tokens: 0,
        nll: None,
        nll_exact: None,
        ..dataset("a")
    };
    let overflow = DatasetResult {
        overflow: true,
        nll: Some(160_000.0),
        ..unknown.clone()
    };
    let mut result = result(vec![unknown, overflow]);
    result.model = None;
    result.complete = false;
    let shown: Vec<_> = rows(&result, false)
        .iter()
        .map(|row| row.join(" "))
        .collect();
    assert_eq!(shown, [" a  - 0 - - - - -", " a  - 0 overflow - - - -"]);
    assert!(render(&[result], None).contains("not complete"));
}
