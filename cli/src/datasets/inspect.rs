//! `assay datasets inspect`.

use std::process::ExitCode;

use assay_api::{DatasetInspection, DatasetInspectionRequest, LengthUnit};
use reqwest::Method;

use super::local;
use crate::client::{Retry, ServerArgs};
use crate::dataset::{DatasetArg, DatasetOptions, dataset};
use crate::failure::{EXIT_CODES, Outcome};
use crate::numbers::{bytes, counted, grouped};
use crate::output;

/// Say what a dataset is: its documents, their lengths, duplicates and groups.
///
/// Reads it on this machine, as a job would; no server is needed. With --model it counts tokens.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Inspect {
    /// The dataset: a file, a directory or a glob, or the JSON object of the API
    #[arg(value_name = "DATASET", value_parser = dataset)]
    dataset: DatasetArg,
    /// Checkpoint whose tokenizer counts the tokens, and whose template makes the text of chats
    #[arg(long, value_name = "PATH")]
    model: Option<String>,
    /// Let the server look: paths are below its roots, and DATASET may be upload:NAME
    #[arg(long)]
    remote: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    options: DatasetOptions,
}

/// Groups that are listed; the others are counted.
const GROUPS: usize = 20;
/// The longest bar of the histogram.
const BAR: usize = 40;

pub(super) async fn run(inspect: &Inspect) -> Outcome {
    let mut given = inspect.dataset.clone();
    if given.plain {
        inspect.options.apply(&mut given.dataset);
    }
    let request = DatasetInspectionRequest {
        dataset: given.dataset,
        model: inspect.model.clone(),
    };
    let (text, found) = if inspect.remote {
        remote(&inspect.server, &request).await?
    } else {
        let found = local::inspect(&request)?;
        (output::to_json(&found), found)
    };
    output::line(if inspect.json {
        text
    } else {
        render(&found, output::width())
    });
    Ok(ExitCode::SUCCESS)
}

async fn remote(
    server: &ServerArgs,
    request: &DatasetInspectionRequest,
) -> Result<(String, DatasetInspection), crate::client::ClientError> {
    let client = server.client()?.patient();
    let answer = client
        .call(
            Method::POST,
            "/datasets/inspect",
            Retry::Interrupted,
            |http| http.json(request),
        )
        .await?;
    Ok((answer.text, answer.value))
}

fn render(found: &DatasetInspection, width: Option<usize>) -> String {
    let format = serde_json::to_value(found.format).unwrap_or_default();
    let mut files: Vec<_> = found
        .files
        .iter()
        .take(GROUPS)
        .map(|file| format!("{}, {}", file.name, bytes(file.bytes)))
        .collect();
    if found.files.len() > GROUPS {
        files.push(format!(
            "and {} more",
            grouped((found.files.len() - GROUPS) as u64)
        ));
    }
    let mut facts = vec![
        ("dataset", vec![found.name.clone()]),
        (
            "format",
            vec![format.as_str().unwrap_or_default().to_owned()],
        ),
    ];
    if !files.is_empty() {
        facts.push(("files", files));
    }
    facts.extend([
        ("digest", vec![found.digest.clone()]),
        ("holds", vec![documents(found), sizes(found)]),
    ]);
    if !found.groups.is_empty() {
        facts.push(("groups", vec![groups(found)]));
    }
    let mut text = output::facts(&facts, width);
    if found.documents > 0 {
        text.push_str("\n\n");
        text.push_str(&histogram(found, width));
    }
    text
}

fn documents(found: &DatasetInspection) -> String {
    let some = [
        (found.empty_documents, "without text"),
        (found.duplicate_documents, "with the text of an earlier one"),
    ];
    let some = some.iter().filter(|(count, _)| *count > 0);
    let some = some.map(|(count, what)| format!("{} {what}", grouped(*count)));
    let mut parts = vec![counted(found.documents, "document")];
    parts.extend(some);
    parts.join(", ")
}

fn sizes(found: &DatasetInspection) -> String {
    let mut parts = vec![counted(found.bytes, "byte"), counted(found.words, "word")];
    if let Some(tokens) = found.tokens {
        parts.push(counted(tokens, "token"));
        let some = found.counted_tokens.filter(|some| *some != tokens);
        parts.extend(some.map(|some| format!("of which {} count", grouped(some))));
    }
    parts.join(", ")
}

fn groups(found: &DatasetInspection) -> String {
    let mut largest: Vec<_> = found.groups.iter().collect();
    largest.sort_by_key(|group| std::cmp::Reverse(group.documents));
    let shown = largest.iter().take(GROUPS);
    let shown: Vec<_> = shown
        .map(|group| format!("{} {}", group.name, grouped(group.documents)))
        .collect();
    let more = match largest.len().saturating_sub(GROUPS) {
        0 => String::new(),
        more => format!(", and {} more", grouped(more as u64)),
    };
    format!("{}{more}", shown.join(", "))
}

/// Documents by length, each line twice as wide a range as the one above.
fn histogram(found: &DatasetInspection, width: Option<usize>) -> String {
    let lengths = &found.lengths;
    let unit = match lengths.unit {
        LengthUnit::Bytes => "bytes",
        LengthUnit::Tokens => "tokens",
    };
    let mut lines = vec![format!(
        "{unit} in a document: {} to {}, half have at most {}",
        grouped(lengths.min),
        grouped(lengths.max),
        grouped(lengths.median)
    )];
    let bins: Vec<_> = lengths
        .histogram
        .iter()
        .map(|bin| {
            let last = bin.to.saturating_sub(1).max(bin.from);
            (grouped(bin.from), grouped(last), bin.documents)
        })
        .collect();
    let longest = |of: &dyn Fn(&(String, String, u64)) -> usize| bins.iter().map(of).max();
    let from = longest(&|bin| bin.0.len()).unwrap_or(0);
    let to = longest(&|bin| bin.1.len()).unwrap_or(0);
    let count = longest(&|bin| grouped(bin.2).len()).unwrap_or(0);
    let most = bins.iter().map(|bin| bin.2).max().unwrap_or(0).max(1);
    let taken = from + to + count + 9;
    let room = width.map_or(BAR, |width| width.saturating_sub(taken).min(BAR));
    for (first, last, documents) in &bins {
        let bar = bar(*documents, most, room);
        let line = format!(
            "  {first:>from$} - {last:>to$}  {:>count$}  {bar}",
            grouped(*documents)
        );
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

/// Documents of a bin as a bar: at least a sliver where there is one.
fn bar(documents: u64, most: u64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = u128::from(documents) * (room as u128) * 8 / u128::from(most);
    let eighths = usize::try_from(eighths).unwrap_or(0);
    let eighths = eighths.max(usize::from(documents > 0 && room > 0));
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use assay_api::{DatasetFormat, FileSize, GroupSize, HistogramBin, Lengths};

    use super::*;

    fn bin(from: u64, to: u64, documents: u64) -> HistogramBin {
        HistogramBin {
            from,
            to,
            documents,
        }
    }

    fn found() -> DatasetInspection {
        DatasetInspection {
            name: "web".to_owned(),
            format: DatasetFormat::Jsonl,
            digest: "sha256:00".to_owned(),
            files: vec![FileSize {
                name: "web/a.jsonl".to_owned(),
                bytes: 202_312,
            }],
            documents: 1014,
            empty_documents: 2,
            duplicate_documents: 0,
            bytes: 200_000,
            words: 36_000,
            tokens: Some(51_234),
            counted_tokens: Some(51_234),
            lengths: Lengths {
                unit: LengthUnit::Tokens,
                min: 0,
                median: 2,
                max: 700,
                histogram: vec![
                    bin(0, 1, 2),
                    bin(1, 2, 1000),
                    bin(2, 4, 0),
                    bin(512, 1024, 12),
                ],
            },
            groups: vec![
                GroupSize {
                    name: "de".to_owned(),
                    documents: 14,
                },
                GroupSize {
                    name: "en".to_owned(),
                    documents: 1000,
                },
            ],
        }
    }

    #[test]
    fn a_dataset_is_facts_and_a_histogram() {
        assert_eq!(
            render(&found(), Some(50)),
            "\
dataset  web
format   jsonl
files    web/a.jsonl, 202.3 kB
digest   sha256:00
holds    1,014 documents, 2 without text
         200,000 bytes, 36,000 words, 51,234
         tokens
groups   en 1,000, de 14

tokens in a document: 0 to 700, half have at most 2
    0 -     0      2  ▏
    1 -     1  1,000  ████████████████████████████
    2 -     3      0
  512 - 1,023     12  ▎"
        );
    }
}
