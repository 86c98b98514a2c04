//! Results as people read them.

use assay_api::{DatasetResult, GroupResult, JobResult};

use crate::method::{describe, label};
use crate::numbers::{grouped, measure, rate};
use crate::output::{self, labelled};
use crate::table::{self, Column, NOTHING};
use crate::{precision, speed};

const COLUMNS: [Column; 10] = [
    Column::name("model", 0),
    Column::name("dataset", 0),
    Column::name("method", 0),
    Column::number("documents", 6),
    Column::number("tokens", 2),
    Column::number("perplexity", 0),
    Column::number("word perplexity", 4),
    Column::number("bits per byte", 3),
    Column::number("standard error", 1),
    Column::number("tokens/s", 5),
];

/// The table of some jobs, what their numbers depend on, and the warnings.
pub(crate) fn render(results: &[JobResult], width: Option<usize>) -> String {
    let rows: Vec<_> = results
        .iter()
        .flat_map(|result| rows(result, results.len() > 1))
        .collect();
    let mut lines = vec![table::render(&COLUMNS, &rows, width)];
    lines.push(output::facts(&facts(results), width));
    // Of a job that ended without success there are no others.
    let goes_on = |result: &JobResult| {
        let mut datasets = result.datasets.iter();
        !result.complete && datasets.any(|dataset| dataset.nll.is_none())
    };
    if results.iter().any(goes_on) {
        let text = "not complete: measures appear when a dataset's last token is counted";
        lines.push(labelled("", text, width));
    }
    let warnings = distinct(results, |result| result.warnings.clone());
    for warning in warnings {
        lines.push(labelled("warning: ", &warning, width));
    }
    lines.join("\n")
}

fn rows(result: &JobResult, several: bool) -> Vec<Vec<String>> {
    let model = match &result.model {
        _ if !several => String::new(),
        Some(model) => model.reference().to_string(),
        None => NOTHING.to_owned(),
    };
    let methods = result.method.as_slice().len();
    let method = |dataset: &DatasetResult| {
        if methods > 1 || several {
            label(&dataset.method)
        } else {
            String::new()
        }
    };
    let rows = result.datasets.iter().flat_map(|dataset| {
        let whole = dataset_row(&model, dataset, method(dataset));
        let groups = dataset.groups.iter().map(group_row);
        std::iter::once(whole).chain(groups)
    });
    rows.collect()
}

fn dataset_row(model: &str, dataset: &DatasetResult, method: String) -> Vec<String> {
    vec![
        model.to_owned(),
        dataset.name.clone(),
        method,
        dataset.documents.map_or_else(nothing, grouped),
        grouped(dataset.scored_tokens),
        perplexity(dataset),
        optional(dataset.word_perplexity),
        optional(dataset.bits_per_byte),
        optional(dataset.standard_error),
        dataset.tokens_per_second.map_or_else(nothing, rate),
    ]
}

fn group_row(group: &GroupResult) -> Vec<String> {
    vec![
        String::new(),
        format!("└ {}", group.name),
        String::new(),
        grouped(group.documents),
        grouped(group.scored_tokens),
        optional(group.perplexity),
        nothing(),
        nothing(),
        optional(group.standard_error),
        nothing(),
    ]
}

fn nothing() -> String {
    NOTHING.to_owned()
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(nothing, measure)
}

fn perplexity(dataset: &DatasetResult) -> String {
    match dataset.perplexity {
        Some(value) => measure(value),
        None if dataset.overflow => "overflow".to_owned(),
        None => nothing(),
    }
}

/// What the numbers depend on.
fn facts(results: &[JobResult]) -> Vec<(&'static str, Vec<String>)> {
    let mut facts = vec![
        ("model", distinct(results, |result| vec![model(result)])),
        ("method", distinct(results, methods)),
        ("device", distinct(results, devices)),
        (
            "version",
            distinct(results, |result| {
                let numerics = result.numerics_version;
                vec![format!(
                    "assay {}, numerics_version {numerics}",
                    result.version
                )]
            }),
        ),
    ];
    let reused = distinct(results, reused);
    if !reused.is_empty() {
        facts.push(("reused", reused));
    }
    let precision = distinct(results, precision::facts);
    if !precision.is_empty() {
        facts.push(("precision", precision));
    }
    let split = distinct(results, |result| {
        let shards = match result.split_shards {
            0 => return Vec::new(),
            1 => "1 shard was".to_owned(),
            many => format!("{} shards were", grouped(many)),
        };
        vec![format!(
            "{shards} computed in smaller parts to fit in memory"
        )]
    });
    if !split.is_empty() {
        facts.push(("split", split));
    }
    let speed = distinct(results, speed::facts);
    if !speed.is_empty() {
        facts.push(("speed", speed));
    }
    let audited = distinct(results, speed::audited);
    if !audited.is_empty() {
        facts.push(("audited", audited));
    }
    let datasets = || results.iter().flat_map(|result| &result.datasets);
    if datasets().any(|dataset| dataset.standard_error.is_some()) {
        let text = "standard errors are those of the mean NLL, in nats per token";
        facts.push(("note", vec![text.to_owned()]));
    }
    facts
}

fn distinct(results: &[JobResult], of: impl Fn(&JobResult) -> Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    for value in results.iter().flat_map(of) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn model(result: &JobResult) -> String {
    let dtype = result.dtype.as_str();
    match &result.model {
        Some(model) => format!(
            "{} ({}, {} parameters), computed in {dtype}",
            model.reference(),
            model.family,
            grouped(model.parameters)
        ),
        None => format!("not planned yet, to be computed in {dtype}"),
    }
}

/// With the index by which other commands name a method, if there are several.
fn methods(result: &JobResult) -> Vec<String> {
    let methods = result.method.as_slice();
    let lines = methods.iter().enumerate().map(|(index, method)| {
        if methods.len() > 1 {
            format!("{index}: {}", describe(method))
        } else {
            describe(method)
        }
    });
    lines.collect()
}

fn devices(result: &JobResult) -> Vec<String> {
    if result.device_kinds.is_empty() {
        vec!["none yet".to_owned()]
    } else {
        result.device_kinds.clone()
    }
}

fn reused(result: &JobResult) -> Vec<String> {
    let several = result.method.as_slice().len() > 1;
    let lines = result.datasets.iter().filter_map(|dataset| {
        let method = several.then(|| format!(" by {}", label(&dataset.method)));
        let method = method.unwrap_or_default();
        let job = dataset.reused_from?;
        Some(format!("{}{method} is of job {job}", dataset.name))
    });
    lines.collect()
}

#[cfg(test)]
#[path = "report_tests.rs"]
pub(crate) mod tests;
