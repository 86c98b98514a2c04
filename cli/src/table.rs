//! Tables that fit the terminal.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

use crate::output::{columns, labelled, printable};

/// What a cell has when there is nothing to show.
pub(crate) const NOTHING: &str = "-";
/// Names are not broken into pieces shorter than this.
const LEAST_NAME: usize = 12;
/// Other columns are left out before names are broken into pieces shorter than their share of
/// this.
const COMFORTABLE_NAMES: usize = 48;
/// A space on either side of a cell, and a border.
const FRAME: usize = 3;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    header: &'static str,
    kind: Kind,
    /// 0 stays whatever the width; of the others the highest goes first.
    rank: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// May be broken anywhere.
    Name,
    /// Stays whole.
    Text,
    /// Stays whole, at the right.
    Number,
}

impl Column {
    /// A column of names, which may be broken.
    pub(crate) const fn name(header: &'static str, rank: u8) -> Self {
        Self {
            header,
            kind: Kind::Name,
            rank,
        }
    }

    /// A column of text that stays whole.
    pub(crate) const fn text(header: &'static str, rank: u8) -> Self {
        Self {
            header,
            kind: Kind::Text,
            rank,
        }
    }

    /// A column of numbers.
    pub(crate) const fn number(header: &'static str, rank: u8) -> Self {
        Self {
            header,
            kind: Kind::Number,
            rank,
        }
    }
}

/// A column, and what of it matters to the layout.
struct Fitted {
    index: usize,
    column: Column,
    /// Of the longest cell.
    longest: usize,
    /// Of the longest word of the header, which is broken between words.
    header: usize,
}

impl Fitted {
    /// The least width, if names are broken at `name`.
    fn least(&self, name: usize) -> usize {
        match self.column.kind {
            Kind::Name => self.longest.min(name),
            Kind::Text | Kind::Number => self.longest,
        }
        .max(self.header)
    }
}

/// The table in `width` columns. Columns without a value are left out; so are those of the
/// highest ranks if the table would be too wide, and a line says so. At worst the table is wider
/// than `width`.
pub(crate) fn render(all: &[Column], rows: &[Vec<String>], width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let mut kept = with_values(all, &rows);
    let mut left_out = Vec::new();
    let names = kept
        .iter()
        .filter(|column| column.column.kind == Kind::Name);
    let mut name = COMFORTABLE_NAMES / names.count().max(2);
    if let Some(width) = width {
        let fits = |kept: &[Fitted], name| {
            let cells = kept.iter().map(|column| column.least(name) + FRAME);
            cells.sum::<usize>() < width
        };
        while !fits(&kept, name) {
            let last = kept
                .iter()
                .enumerate()
                .max_by_key(|(place, column)| (column.column.rank, *place));
            match last {
                Some((place, column)) if column.column.rank > 0 => {
                    left_out.push(column.column.header);
                    kept.remove(place);
                }
                _ => {
                    name = LEAST_NAME;
                    break;
                }
            }
        }
    }
    let mut text = draw(&kept, &rows, name, width).to_string();
    if !left_out.is_empty() {
        left_out.reverse();
        let note = format!(
            "{}; a wider terminal or --json shows them",
            left_out.join(", ")
        );
        text.push('\n');
        text.push_str(&labelled("not shown: ", &note, width));
    }
    text
}

fn with_values(all: &[Column], rows: &[Vec<String>]) -> Vec<Fitted> {
    let fitted = all.iter().enumerate().filter_map(|(index, column)| {
        let cells = || rows.iter().map(|row| row[index].as_str());
        let empty = |cell: &str| cell.is_empty() || (cell == NOTHING && column.rank > 0);
        if !rows.is_empty() && cells().all(empty) {
            return None;
        }
        let words = column.header.split(' ');
        Some(Fitted {
            index,
            column: *column,
            longest: cells().map(columns).max().unwrap_or(0),
            header: words.map(columns).max().unwrap_or(0),
        })
    });
    fitted.collect()
}

fn draw(kept: &[Fitted], rows: &[Vec<String>], name: usize, width: Option<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    match width.and_then(|width| u16::try_from(width).ok()) {
        Some(width) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table.set_header(kept.iter().map(|column| column.column.header));
    table.add_rows(
        rows.iter()
            .map(|row| kept.iter().map(|column| row[column.index].as_str())),
    );
    for (column, shape) in table.column_iter_mut().zip(kept) {
        if shape.column.kind == Kind::Number {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let least = u16::try_from(shape.least(name) + 2).unwrap_or(u16::MAX);
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least)));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::name("dataset", 0),
        Column::number("tokens", 2),
        Column::number("perplexity", 0),
        Column::number("tokens per second", 3),
    ];

    fn row(cells: [&str; 4]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    fn widest(text: &str) -> usize {
        text.lines().map(columns).max().unwrap()
    }

    #[test]
    fn what_does_not_fit_is_left_out_by_rank_and_named() {
        let rows = [row(["a/b.txt", "51,234", "22.7091", "1,235"])];
        let whole = render(&COLUMNS, &rows, None);
        assert!(whole.contains("tokens per second"), "{whole}");
        for (width, tokens, speed) in [(60, true, true), (40, true, false), (30, false, false)] {
            let text = render(&COLUMNS, &rows, Some(width));
            assert!(widest(&text) <= width, "{text}");
            assert_eq!(text.contains("51,234"), tokens, "{text}");
            assert_eq!(text.contains("1,235"), speed, "{text}");
            assert!(text.contains("22.7091"), "{text}");
            assert_eq!(text.contains("not shown: "), !speed, "{text}");
        }
    }

    #[test]
    fn long_names_are_broken_and_numbers_never() {
        let name = "a/rather/long/path/of/a/dataset.jsonl";
        let rows = [row([name, "51,234", "22.7091", "-"])];
        let text = render(&COLUMNS, &rows, Some(30));
        assert!(widest(&text) <= 30, "{text}");
        assert!(text.contains("22.7091"), "{text}");
        let text = render(&COLUMNS, &rows, Some(80));
        assert!(text.contains(name), "{text}");
    }

    #[test]
    fn a_column_without_values_is_left_out_without_a_word() {
        let rows = [row(["a", "1", "-", "-"])];
        let text = render(&COLUMNS, &rows, None);
        assert!(
            text.contains("perplexity") && !text.contains("per second"),
            "{text}"
        );
        assert!(!text.contains("not shown"), "{text}");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [row(["中文数据", "1", "1", "1"])];
        let text = render(&COLUMNS, &rows, None);
        let widths: Vec<_> = text.lines().map(columns).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
