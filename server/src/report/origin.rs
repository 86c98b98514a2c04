//! The end of a report: how fast it went, what the numbers were made from, and how to make them
//! again.

use assay_api::{Job, JobResult, JobState, Performance};
use maud::{Markup, html};

use super::figures::{DASH, count, exact, exact_or_dash, method, percent, rounded};
use super::page::model;
use super::request;

pub(super) fn speed(performance: &Performance) -> Markup {
    let baseline = performance.baseline.as_ref();
    let rows = [
        (
            "Tokens per second, the whole job",
            exact_or_dash(performance.tokens_per_second),
        ),
        (
            "Tokens per second, all devices at once",
            exact_or_dash(performance.distributed_tokens_per_second),
        ),
        (
            "One device alone, tokens per second",
            exact_or_dash(baseline.map(|baseline| baseline.tokens_per_second)),
        ),
        (
            "Speed-up",
            performance
                .speedup
                .map_or_else(|| DASH.to_owned(), |x| format!("{} times", rounded(x, 3))),
        ),
        (
            "Efficiency",
            performance
                .efficiency
                .map_or_else(|| DASH.to_owned(), percent),
        ),
        (
            "Seconds, first claim to last commit",
            exact(performance.seconds),
        ),
        ("Counted tokens", count(performance.counted_tokens)),
        ("Computed tokens", count(performance.computed_tokens)),
    ];
    html! {
        section {
            h2 { "Speed" }
            dl.measures { @for (name, value) in rows { div { dt { (name) } dd { (value) } } } }
            @if !performance.devices.is_empty() {
                div.wide tabindex="0" role="region" aria-label="Devices" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Worker" }
                                th scope="col" { "Device" }
                                @for name in ["Shards", "Tokens", "Busy, s", "Idle, s"] {
                                    th.number scope="col" { (name) }
                                }
                            }
                        }
                        tbody {
                            @for device in &performance.devices {
                                tr {
                                    th scope="row" { (device.worker) }
                                    td { (device.device) }
                                    td.number { (count(device.shards)) }
                                    td.number { (count(device.tokens)) }
                                    td.number { (rounded(device.busy_seconds, 2)) }
                                    td.number { (rounded(device.idle_seconds, 2)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn provenance(job: &Job, result: &JobResult) -> Markup {
    let mut facts = vec![("Job", job.id.to_string()), ("Model", model(job))];
    if let Some(model) = &result.model {
        let parameters = count(model.parameters);
        facts.push((
            "Family",
            format!("{}, {parameters} parameters", model.family),
        ));
        facts.push(("Weights", model.digest.clone()));
    }
    if let Some(tokenizer) = &result.tokenizer {
        facts.push(("Tokenizer", tokenizer.digest.clone()));
        facts.extend(
            tokenizer
                .chat_template
                .clone()
                .map(|digest| ("Chat template", digest)),
        );
    }
    // Each dataset once, whatever the number of its methods.
    let methods = job.method.as_slice().len().max(1);
    for dataset in result.datasets.iter().step_by(methods) {
        let digest = dataset.digest.as_deref().unwrap_or(DASH);
        facts.push(("Data", format!("{}: {digest}", dataset.name)));
    }
    for dataset in &result.datasets {
        if let Some(from) = dataset.reused_from {
            let of = method(&dataset.method);
            facts.push(("Taken from", format!("job {from}: {}, {of}", dataset.name)));
        }
    }
    facts.extend(
        job.method
            .as_slice()
            .iter()
            .map(|one| ("Method", method(one))),
    );
    facts.push((
        "Dtype",
        format!(
            "{}, {} numerics",
            result.dtype.as_str(),
            job.numerics.as_str()
        ),
    ));
    facts.extend(
        result
            .device_kinds
            .iter()
            .map(|kind| ("Device kind", kind.clone())),
    );
    facts.push(("Version", format!("assay {}", result.version)));
    facts.push(("Numerics version", result.numerics_version.to_string()));
    facts.push(("Audited", percent(result.audited)));
    if result.split_shards > 0 {
        facts.push(("Split shards", count(result.split_shards)));
    }
    let times = [
        ("Created", Some(job.created_at)),
        ("Started", job.started_at),
        ("Finished", job.finished_at),
    ];
    facts.extend(times.into_iter().filter_map(|(name, at)| {
        let at = at?.format("%Y-%m-%d %H:%M:%S UTC").to_string();
        Some((name, at))
    }));
    facts.extend(
        job.tags
            .iter()
            .map(|(key, value)| ("Tag", format!("{key}: {value}"))),
    );
    html! {
        section {
            h2 { "Provenance" }
            dl.provenance { @for (name, value) in facts { dt { (name) } dd { (value) } } }
        }
    }
}

pub(super) fn again(job: &Job) -> Markup {
    html! {
        section {
            h2 { "How to reproduce" }
            @if request::has_inline_documents(job) {
                p { "Documents came with the request and are not kept: add them to their dataset as "
                    code { "documents" } "." }
            }
            pre tabindex="0" { code { (request::command(&request::body(job))) } }
            @if job.state == JobState::Succeeded {
                p.note {
                    "On the same device kind the sums are equal to the last unit of 2\u{207b}\u{b3}\u{b2} nat. "
                    "Numbers that an earlier job has scored are taken from it; "
                    code { "--no-reuse" } " has them scored anew."
                }
            }
        }
    }
}
