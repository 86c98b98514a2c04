//! The table of a result.

use std::ops::Range;

use assay_api::{DatasetResult, JobResult};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

use crate::numbers::{grouped, measure, rate};

const HEADER: [&str; 8] = [
    "model",
    "dataset",
    "tokens",
    "perplexity",
    "word perplexity",
    "bits per byte",
    "standard error",
    "tokens/s",
];
/// Columns of names; the others are numbers.
const NAMES: Range<usize> = 0..2;
const NOTHING: &str = "-";
/// Names are not broken into shorter pieces.
const NAME_WIDTH: u16 = 12;
/// A space on either side of a cell.
const PADDING: u16 = 2;

/// The table, the method and the warnings.
pub(crate) fn render(result: &JobResult) -> String {
    let mut lines = vec![
        plain_table(&HEADER, NAMES, &rows(result)).to_string(),
        method_line(result),
    ];
    if !result.complete {
        let text = "not complete: measures appear when a dataset's last token is counted";
        lines.push(text.to_owned());
    }
    lines.extend(
        result
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    lines.join("\n")
}

/// A table in which the columns `names` may be broken anywhere and those after them are numbers.
///
/// On a terminal that is too narrow, other cells break between words only: at worst the table is
/// wider than the terminal.
pub(crate) fn plain_table(header: &[&str], names: Range<usize>, rows: &[Vec<String>]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        let cells = rows.iter().map(|row| row[index].as_str());
        let words = cells.chain([header[index]]).flat_map(str::split_whitespace);
        let longest = words.map(|word| word.chars().count()).max().unwrap_or(0);
        let longest = u16::try_from(longest).unwrap_or(u16::MAX - PADDING);
        let breakable = names.contains(&index);
        let least = if breakable {
            longest.min(NAME_WIDTH)
        } else {
            longest
        };
        if index >= names.end {
            column.set_cell_alignment(CellAlignment::Right);
        }
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
            least + PADDING,
        )));
    }
    table
}

fn rows(result: &JobResult) -> Vec<Vec<String>> {
    let model = result.model.as_ref().map_or(NOTHING, |model| &model.path);
    let row = |dataset: &DatasetResult| {
        let optional = |value: Option<f64>| value.map_or_else(|| NOTHING.to_owned(), measure);
        vec![
            model.to_owned(),
            dataset.name.clone(),
            grouped(dataset.scored_tokens),
            perplexity(dataset),
            optional(dataset.word_perplexity),
            optional(dataset.bits_per_byte),
            optional(dataset.standard_error),
            dataset
                .tokens_per_second
                .map_or_else(|| NOTHING.to_owned(), rate),
        ]
    };
    result.datasets.iter().map(row).collect()
}

fn perplexity(dataset: &DatasetResult) -> String {
    match dataset.perplexity {
        Some(value) => measure(value),
        None if dataset.overflow => "overflow".to_owned(),
        None => NOTHING.to_owned(),
    }
}

/// What the numbers depend on, in one line. Standard errors have the unit of the mean NLL.
fn method_line(result: &JobResult) -> String {
    let convention = serde_json::to_value(result.method.convention).unwrap_or_default();
    format!(
        "method: {}, window {}, {}, on {}; assay {}, numerics {}; standard error in nats per token",
        convention.as_str().unwrap_or_default(),
        result.method.window,
        result.dtype.as_str(),
        if result.device_kinds.is_empty() {
            "no device yet".to_owned()
        } else {
            result.device_kinds.join(" and ")
        },
        result.version,
        result.numerics_version,
    )
}

#[cfg(test)]
mod tests {
    use assay_api::{Convention, Dtype, Method, ModelFacts, Performance};

    use super::*;

    fn dataset(name: &str) -> DatasetResult {
        DatasetResult {
            name: name.to_owned(),
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
        }
    }

    fn result(datasets: Vec<DatasetResult>) -> JobResult {
        JobResult {
            job_id: uuid::Uuid::nil(),
            complete: true,
            model: Some(ModelFacts {
                path: "tiny.gguf".to_owned(),
                family: "llama".to_owned(),
                parameters: 134_515_008,
                digest: "sha256:11".to_owned(),
            }),
            tokenizer: None,
            method: Method {
                convention: Convention::Rolling,
                window: 2048,
            },
            dtype: Dtype::Float32,
            device_kinds: vec!["cpu avx512 x1".to_owned()],
            version: "0.1.0".to_owned(),
            numerics_version: 1,
            datasets,
            performance: Performance::default(),
            warnings: vec!["one document: 50 spans are the clusters".to_owned()],
        }
    }

    #[test]
    fn a_result_is_a_table_its_method_and_its_warnings() {
        assert_eq!(
            render(&result(vec![dataset("moby.txt")])),
            "\
┌───────────┬──────────┬────────┬────────────┬─────────────────┬───────────────┬────────────────┬──────────┐
│ model     ┆ dataset  ┆ tokens ┆ perplexity ┆ word perplexity ┆ bits per byte ┆ standard error ┆ tokens/s │
╞═══════════╪══════════╪════════╪════════════╪═════════════════╪═══════════════╪════════════════╪══════════╡
│ tiny.gguf ┆ moby.txt ┆ 51,234 ┆    22.7091 ┆         85.1000 ┆        1.1546 ┆         0.0312 ┆    1,235 │
└───────────┴──────────┴────────┴────────────┴─────────────────┴───────────────┴────────────────┴──────────┘
method: rolling, window 2048, float32, on cpu avx512 x1; assay 0.1.0, numerics 1; standard error in nats per token
warning: one document: 50 spans are the clusters"
        );
    }

    #[test]
    fn a_narrow_terminal_breaks_headers_and_names_but_no_number() {
        let rows = rows(&result(vec![dataset(
            "a/rather/long/path/of/a/dataset.jsonl",
        )]));
        let mut table = plain_table(&HEADER, NAMES, &rows);
        let shown = table.set_width(80).to_string();
        for whole in [
            "51,234",
            "22.7091",
            "85.1000",
            "1.1546",
            "0.0312",
            "perplexity ┆",
        ] {
            assert!(shown.contains(whole), "{shown}");
        }
        assert!(
            shown.lines().all(|line| line.chars().count() < 100),
            "{shown}"
        );
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_an_overflow_says_so() {
        let unknown = DatasetResult {
            perplexity: None,
            word_perplexity: None,
            bits_per_byte: None,
            standard_error: None,
            tokens_per_second: None,
            scored_tokens: 0,
            ..dataset("a")
        };
        let overflow = DatasetResult {
            overflow: true,
            ..unknown.clone()
        };
        let mut result = result(vec![unknown, overflow]);
        result.model = None;
        result.complete = false;
        let shown: Vec<_> = rows(&result).iter().map(|row| row.join(" ")).collect();
        assert_eq!(shown, ["- a 0 - - - - -", "- a 0 overflow - - - -"]);
        assert!(render(&result).contains("not complete"));
    }
}
