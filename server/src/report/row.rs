//! The section of a dataset under a method.

use assay_api::{DatasetResult, DocumentRow, GroupResult};
use maud::{Markup, html};

use super::RowFacts;
use super::charts::{Interval, histogram, intervals};
use super::figures::{DASH, count, exact, exact_or_dash, mean, mean_nll, method};

/// Groups that are shown.
const GROUPS: usize = 100;

pub(super) fn section(index: usize, dataset: &DatasetResult, facts: &RowFacts) -> Markup {
    html! {
        section id=(format!("row-{index}")) {
            h2 { (dataset.name) small { (method(&dataset.method)) } }
            @if dataset.nll.is_none() {
                p { "It did not come to an end: " (count(dataset.scored_tokens)) " tokens are counted." }
            } @else {
                (measures(dataset))
                @if dataset.overflow {
                    p.note { "An exponential overflowed; the mean NLL is still exact." }
                }
                @match &facts.histogram {
                    Some(found) if found.bins.iter().sum::<u64>() > 1 => (histogram(found)),
                    _ => {},
                }
                @if !dataset.groups.is_empty() { (groups(&dataset.groups)) }
                @if facts.worst.len() > 1 { (worst(&facts.worst)) }
            }
        }
    }
}

fn measures(dataset: &DatasetResult) -> Markup {
    let or_dash = |n: Option<u64>| n.map_or_else(|| DASH.to_owned(), count);
    let rows = [
        ("Perplexity", exact_or_dash(dataset.perplexity)),
        ("Mean NLL, nats per token", exact_or_dash(mean_nll(dataset))),
        ("Standard error", exact_or_dash(dataset.standard_error)),
        (
            "95 % interval, \u{b1}",
            exact_or_dash(dataset.confidence_95),
        ),
        ("Word perplexity", exact_or_dash(dataset.word_perplexity)),
        ("Byte perplexity", exact_or_dash(dataset.byte_perplexity)),
        ("Bits per byte", exact_or_dash(dataset.bits_per_byte)),
        ("Macro perplexity", exact_or_dash(dataset.macro_perplexity)),
        ("NLL, nats", exact_or_dash(dataset.nll)),
        (
            "NLL, units of 2\u{207b}\u{b3}\u{b2} nat",
            dataset.nll_exact.clone().unwrap_or_else(|| DASH.to_owned()),
        ),
        ("Scored tokens", count(dataset.scored_tokens)),
        ("Tokens", or_dash(dataset.tokens)),
        ("Documents", or_dash(dataset.documents)),
        (
            "Documents without a scored token",
            or_dash(dataset.unscored_documents),
        ),
        ("Words", or_dash(dataset.words)),
        ("Bytes", or_dash(dataset.bytes)),
        ("Device seconds", exact(dataset.seconds)),
        (
            "Tokens per device second",
            exact_or_dash(dataset.tokens_per_second),
        ),
    ];
    html! {
        dl.measures {
            @for (name, value) in rows { div { dt { (name) } dd { (value) } } }
        }
    }
}

fn groups(groups: &[GroupResult]) -> Markup {
    let shown = &groups[..groups.len().min(GROUPS)];
    let bars: Vec<Interval> = shown
        .iter()
        .filter_map(|group| {
            Some(Interval {
                label: group.name.clone(),
                mean: mean(group.nll, group.scored_tokens)?,
                half: group.confidence_95,
            })
        })
        .collect();
    html! {
        h3 { "Groups" }
        @if !bars.is_empty() { (intervals(&bars)) }
        div.wide tabindex="0" role="region" aria-label="Groups" {
            table {
                thead {
                    tr {
                        th scope="col" { "Group" }
                        @for name in ["Documents", "Scored tokens", "Perplexity", "Mean NLL", "95 %, \u{b1}"] {
                            th.number scope="col" { (name) }
                        }
                    }
                }
                tbody {
                    @for group in shown {
                        tr {
                            th scope="row" { (group.name) }
                            td.number { (count(group.documents)) }
                            td.number { (count(group.scored_tokens)) }
                            td.number { (exact_or_dash(group.perplexity)) }
                            td.number { (exact_or_dash(mean(group.nll, group.scored_tokens))) }
                            td.number { (exact_or_dash(group.confidence_95)) }
                        }
                    }
                }
            }
        }
        @if groups.len() > shown.len() {
            p.note { "And " (count((groups.len() - shown.len()) as u64)) " more, which the results of the API have." }
        }
    }
}

fn worst(documents: &[DocumentRow]) -> Markup {
    let grouped = documents.iter().any(|document| document.group.is_some());
    html! {
        h3 { "Documents with the highest mean NLL" }
        div.wide tabindex="0" role="region" aria-label="Documents with the highest mean NLL" {
            table {
                thead {
                    tr {
                        th.number scope="col" { "Document" }
                        @if grouped { th scope="col" { "Group" } }
                        @for name in ["Mean NLL", "Scored tokens", "Bytes"] {
                            th.number scope="col" { (name) }
                        }
                    }
                }
                tbody {
                    @for document in documents {
                        tr {
                            th.number scope="row" { (count(document.index)) }
                            @if grouped { td { (document.group.as_deref().unwrap_or(DASH)) } }
                            td.number { (exact_or_dash(mean(document.nll, document.scored_tokens))) }
                            td.number { (count(document.scored_tokens)) }
                            td.number { (count(document.bytes)) }
                        }
                    }
                }
            }
        }
    }
}
