//! A comparison as people read it.

use std::iter;

use assay_api::{Comparison, DatasetComparison, DocumentChange, PairedDifference, Unit};

use super::{has_several_methods, names, word};
use crate::method::label;
use crate::numbers::{grouped, measure, signed, small};
use crate::output::{self, labelled};
use crate::table::{self, Column, NOTHING};

const COLUMNS: [Column; 12] = [
    Column::name("dataset", 0),
    Column::name("method", 0),
    Column::text("unit", 0),
    Column::number("mean nll before", 4),
    Column::number("mean nll now", 3),
    Column::number("difference", 0),
    Column::number("± 95 %", 0),
    Column::number("sign test p", 2),
    Column::number("worse", 3),
    Column::number("better", 3),
    Column::number("equal", 5),
    Column::text("verdict", 0),
];

/// The rows, their groups, the documents that changed most, and what to know about the numbers.
pub(super) fn render(comparison: &Comparison, width: Option<usize>) -> String {
    let rows = &comparison.datasets;
    let several = has_several_methods(rows);
    let cells: Vec<_> = rows
        .iter()
        .flat_map(|row| with_groups(row, several, only_unit(rows).is_none()))
        .collect();
    let mut parts = vec![table::render(&COLUMNS, &cells, width)];
    parts.extend(documents("rose", rows, |row| &row.worst, width));
    parts.extend(documents("fell", rows, |row| &row.best, width));
    parts.push(output::facts(&facts(comparison), width));
    for warning in &comparison.warnings {
        parts.push(labelled("warning: ", warning, width));
    }
    parts.join("\n")
}

/// A column without values is left out: that of the method and that of the unit, where they are
/// the same in all rows.
fn with_groups(row: &DatasetComparison, method: bool, unit: bool) -> Vec<Vec<String>> {
    let method = method.then(|| label(&row.method));
    let unit = unit.then(|| row.unit.as_str().to_owned());
    let verdict = row.verdict.map(word).unwrap_or_default();
    let whole = [
        row.name.clone(),
        method.unwrap_or_default(),
        unit.unwrap_or_default(),
    ];
    let whole = cells(whole, &row.difference, verdict);
    let groups = row.groups.iter().map(|group| {
        let name = [format!("└ {}", group.name), String::new(), String::new()];
        cells(name, &group.difference, "")
    });
    iter::once(whole).chain(groups).collect()
}

fn cells(name: [String; 3], of: &PairedDifference, verdict: &str) -> Vec<String> {
    let optional = |value: Option<f64>, shown: fn(f64) -> String| {
        value.map_or_else(|| NOTHING.to_owned(), shown)
    };
    let numbers = [
        optional(of.baseline_mean_nll, measure),
        optional(of.candidate_mean_nll, measure),
        optional(of.difference, signed),
        optional(of.confidence_95, small),
        measure(of.sign_test_p),
        grouped(of.worse),
        grouped(of.better),
        grouped(of.equal),
        verdict.to_owned(),
    ];
    name.into_iter().chain(numbers).collect()
}

/// A title and a table of the documents of all rows; none if there are no documents.
fn documents(
    what: &str,
    rows: &[DatasetComparison],
    of: fn(&DatasetComparison) -> &[DocumentChange],
    width: Option<usize>,
) -> Option<String> {
    let mut cells = Vec::new();
    for (row, name) in rows.iter().zip(names(rows)) {
        // A column without values is left out.
        let name = if rows.len() > 1 { name } else { String::new() };
        cells.extend(of(row).iter().map(|change| document(name.clone(), change)));
    }
    if cells.is_empty() {
        return None;
    }
    let units = match only_unit(rows) {
        Some(Unit::Token) => "tokens",
        Some(Unit::Byte) => "bytes",
        None => "tokens or bytes",
    };
    let columns = [
        Column::name("dataset", 0),
        Column::number("document", 0),
        Column::name("group", 1),
        Column::number(units, 2),
        Column::number("mean nll before", 3),
        Column::number("mean nll now", 2),
        Column::number("difference", 0),
    ];
    let title = labelled("", &format!("documents whose mean NLL {what} most"), width);
    Some(format!(
        "{title}\n{}",
        table::render(&columns, &cells, width)
    ))
}

fn document(name: String, change: &DocumentChange) -> Vec<String> {
    vec![
        name,
        grouped(change.index),
        change.group.clone().unwrap_or_default(),
        grouped(change.units),
        measure(change.baseline_mean_nll),
        measure(change.candidate_mean_nll),
        signed(change.difference),
    ]
}

/// The unit of all rows, if they have one.
fn only_unit(rows: &[DatasetComparison]) -> Option<Unit> {
    let first = rows.first()?.unit;
    rows.iter().all(|row| row.unit == first).then_some(first)
}

/// What the numbers are of, and how to read them.
fn facts(comparison: &Comparison) -> Vec<(&'static str, Vec<String>)> {
    let rows = || comparison.datasets.iter().zip(names(&comparison.datasets));
    let ratios = rows().filter_map(|(row, name)| {
        let ratio = row.difference.perplexity_ratio?;
        let of = match row.unit {
            Unit::Token => "",
            Unit::Byte => ", by byte",
        };
        Some(format!(
            "{name}: {} times that of the baseline{of}",
            measure(ratio)
        ))
    });
    let reasons = rows().filter_map(|(row, name)| {
        let reason = row.reason.as_ref()?;
        Some(format!("{name}: {reason}"))
    });
    let renamed = rows().filter_map(|(row, name)| {
        let before = row.baseline_name.as_ref()?;
        Some(format!("{name} is {before} in the baseline"))
    });
    let unit = only_unit(&comparison.datasets).map_or("unit", Unit::as_str);
    let note = format!(
        "in nats per {unit}; before is the baseline, now the candidate; ± is half of the interval \
         of the difference; worse, better and equal are documents, or the spans of a single one"
    );
    let facts = [
        ("candidate", vec![comparison.candidate.to_string()]),
        ("baseline", vec![comparison.baseline.to_string()]),
        ("renamed", renamed.collect()),
        ("perplexity", ratios.collect()),
        ("reason", reasons.collect()),
        (
            "verdict",
            comparison
                .verdict
                .map(word)
                .map(str::to_owned)
                .into_iter()
                .collect(),
        ),
        ("note", vec![note]),
    ];
    facts
        .into_iter()
        .filter(|(_, lines): &(_, Vec<String>)| !lines.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use assay_api::{GroupComparison, Verdict};

    use super::*;
    use crate::compare::tests::{by_blocks, comparison, difference, judged, row};
    use crate::output::columns;

    fn change(index: u64, difference: f64) -> DocumentChange {
        DocumentChange {
            index,
            group: None,
            units: 1_200,
            baseline_mean_nll: 3.0,
            candidate_mean_nll: 3.0 + difference,
            difference,
        }
    }

    fn widest(text: &str) -> usize {
        text.lines().map(columns).max().unwrap()
    }

    #[test]
    fn a_comparison_has_its_rows_groups_and_documents() {
        let mut one = row("texts.jsonl", 2.5, 2.625);
        one.groups = vec![GroupComparison {
            name: "law".to_owned(),
            difference: difference(2.0, 1.75),
        }];
        one.worst = vec![change(1_234, 0.75)];
        let mut compared = comparison(vec![one]);
        compared.warnings = vec!["two devices of different kinds".to_owned()];
        let text = render(&compared, None);
        for words in [
            "│ texts.jsonl ┆",
            " +0.125000 ┆",
            " 0.004000 ┆",
            " 0.0032 ┆",
            "│ └ law ",
            " -0.250000 ┆",
            "documents whose mean NLL rose most\n",
            " +0.750000 │",
            "\nperplexity  texts.jsonl: 1.1331 times that of the baseline\n",
            "\nnote        in nats per token; ",
            "\nbaseline    00000000-0000-0000-0000-000000000001\n",
            "\nwarning: two devices of different kinds",
        ] {
            assert!(text.contains(words), "{words:?} in\n{text}");
        }
        for words in ["fell", "unit", "method", "verdict", "renamed", "reason"] {
            assert!(!text.contains(words), "{words:?} in\n{text}");
        }
        assert!(text.contains("│    1,234 ┆  1,200 ┆"), "no name: {text}");
    }

    #[test]
    fn documents_say_of_which_row_they_are() {
        let mut blocks = by_blocks(row("a", 1.0, 0.5));
        blocks.best = vec![change(7, -0.5)];
        blocks.unit = Unit::Byte;
        blocks.baseline_name = Some("b".to_owned());
        let text = render(&comparison(vec![row("a", 1.0, 0.5), blocks]), None);
        for words in [
            "documents whose mean NLL fell most\n",
            "│ a (blocks 1024) ┆        7 ┆",
            "┆ byte ",
            "tokens or bytes",
            "in nats per unit",
            "a (blocks 1024): 0.6065 times that of the baseline, by byte",
            "a (blocks 1024) is b in the baseline",
        ] {
            assert!(text.contains(words), "{words:?} in\n{text}");
        }
    }

    #[test]
    fn a_verdict_and_what_it_rests_on_stay_in_a_narrow_terminal() {
        let reason = "the increase is at least 0.1210, more than 0.0100";
        let mut compared = comparison(vec![
            judged(
                Verdict::Fail,
                reason,
                row("a/rather/long/path.jsonl", 2.5, 2.625),
            ),
            judged(Verdict::Pass, "below", row("b.jsonl", 2.5, 2.5)),
        ]);
        compared.verdict = Some(Verdict::Fail);
        compared.datasets[0].worst = vec![change(0, 0.5)];
        for width in [60, 80, 100] {
            let text = render(&compared, Some(width));
            assert!(widest(&text) <= width, "{text}");
            for words in [
                "+0.125000",
                "0.004000",
                "FAIL",
                "PASS",
                "more than",
                "+0.500000",
            ] {
                assert!(text.contains(words), "{words:?} in\n{text}");
            }
            assert!(text.contains("\nverdict     FAIL\n"), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_number() {
        let mut empty = row("d", 0.0, 0.0);
        empty.difference.baseline_mean_nll = None;
        empty.difference.candidate_mean_nll = None;
        empty.difference.difference = None;
        empty.difference.perplexity_ratio = None;
        empty.difference.confidence_95 = None;
        let text = render(&comparison(vec![empty, row("e", 1.0, 1.5)]), None);
        let line = text.lines().find(|line| line.contains("│ d ")).unwrap();
        assert_eq!(line.matches(" - ").count(), 4, "{text}");
        assert!(!text.contains("d: "), "{text}");
    }
}
