//! The page of a report, from its title to how to make it again.

use assay_api::{GateResult, Job, JobResult, Verdict};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::{Interval, intervals};
use super::figures::{DASH, count, exact, exact_or_dash, mean_nll, method};
use super::{Facts, origin, row};

const STYLE: &str = include_str!("style.css");

/// For readers that get the file from elsewhere than the service: nothing is loaded, nothing runs.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'";

pub(super) fn render(facts: &Facts) -> Markup {
    let Facts {
        job,
        result,
        gate,
        rows,
    } = facts;
    let title = job.name.as_deref().unwrap_or(&job.model.path);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " \u{b7} Assay" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.kind { "Assay, report of a job" }
                    h1 { (title) }
                    p.facts {
                        span class={ "state " (job.state.as_str()) } { (job.state.as_str()) }
                        span { (model(job)) }
                        span { (job.id) }
                    }
                    @if let Some(why) = job.why_unsuccessful("The job") { p.problem role="alert" { (why) } }
                }
                main {
                    @if let Some(gate) = gate { (verdict(gate)) }
                    (overview(result))
                    @if !result.warnings.is_empty() {
                        section {
                            h2 { "Warnings" }
                            ul { @for warning in &result.warnings { li { (warning) } } }
                        }
                    }
                    @for (index, (dataset, facts)) in result.datasets.iter().zip(rows).enumerate() {
                        (row::section(index, dataset, facts))
                    }
                    (origin::speed(&result.performance))
                    (origin::provenance(job, result))
                    (origin::again(job))
                }
            }
        }
    }
}

pub(super) fn model(job: &Job) -> String {
    match &job.model.adapter {
        None => job.model.path.clone(),
        Some(adapter) => format!("{} + {adapter}", job.model.path),
    }
}

fn verdict(gate: &GateResult) -> Markup {
    let (class, word) = match gate.verdict {
        Some(Verdict::Pass) => ("pass", "PASS"),
        Some(Verdict::Fail) => ("fail", "FAIL"),
        Some(Verdict::Inconclusive) => ("inconclusive", "INCONCLUSIVE"),
        None => ("inconclusive", "NOT YET"),
    };
    let compared = gate
        .comparison
        .as_ref()
        .map(|c| c.datasets.as_slice())
        .unwrap_or_default();
    html! {
        section class={ "gate " (class) } {
            h2 { "Gate: " (word) }
            p { (gate.reason) }
            p.note {
                "Held against job " (gate.gate.baseline) "; at most "
                (exact(gate.gate.max_increase)) " nats more pass."
            }
            @if !compared.is_empty() {
                div.wide tabindex="0" role="region" aria-label="Differences from the baseline" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Dataset" }
                                th scope="col" { "Method" }
                                th.number scope="col" { "Difference, nats" }
                                th.number scope="col" { "95 %, \u{b1}" }
                                th scope="col" { "Verdict" }
                            }
                        }
                        tbody {
                            @for dataset in compared {
                                tr {
                                    th scope="row" { (dataset.name) }
                                    td { (method(&dataset.method)) }
                                    td.number { (exact_or_dash(dataset.difference.difference)) " per " (dataset.unit.as_str()) }
                                    td.number { (exact_or_dash(dataset.difference.confidence_95)) }
                                    td { (dataset.verdict.map_or(DASH, Verdict::as_str)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn overview(result: &JobResult) -> Markup {
    let bars: Vec<Interval> = result
        .datasets
        .iter()
        .filter_map(|dataset| {
            Some(Interval {
                label: format!(
                    "{} \u{b7} {}",
                    dataset.name,
                    dataset.method.convention.as_str()
                ),
                mean: mean_nll(dataset)?,
                half: dataset.confidence_95,
            })
        })
        .collect();
    html! {
        section {
            h2 { "Results" }
            div.wide tabindex="0" role="region" aria-label="Results" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Dataset" }
                            th scope="col" { "Method" }
                            @for name in ["Scored tokens", "Perplexity", "Mean NLL", "95 %, \u{b1}", "Bits per byte"] {
                                th.number scope="col" { (name) }
                            }
                        }
                    }
                    tbody {
                        @for (index, dataset) in result.datasets.iter().enumerate() {
                            tr {
                                th scope="row" { a href=(format!("#row-{index}")) { (dataset.name) } }
                                td { (method(&dataset.method)) }
                                td.number { (count(dataset.scored_tokens)) }
                                td.number { (exact_or_dash(dataset.perplexity)) }
                                td.number { (exact_or_dash(mean_nll(dataset))) }
                                td.number { (exact_or_dash(dataset.confidence_95)) }
                                td.number { (exact_or_dash(dataset.bits_per_byte)) }
                            }
                        }
                    }
                }
            }
            @if !bars.is_empty() {
                h3 { "Mean NLL and its 95 % interval" }
                (intervals(&bars))
            }
            p.note {
                "Perplexity is per token of the model's own tokenizer; bits per byte compare any two "
                "models. Errors are those of the mean NLL, in nats per token, clustered by document."
            }
        }
    }
}
