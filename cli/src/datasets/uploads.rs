//! Datasets that are kept on the server.

use std::path::PathBuf;
use std::process::ExitCode;

use assay_api::Upload;
use chrono::Utc;
use reqwest::Method;

use crate::client::{Retry, ServerArgs};
use crate::documents::parsed;
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::follow::transfer_bar;
use crate::numbers::{age, bytes};
use crate::output;
use crate::table::{self, Column};

/// The server's largest page.
const PAGE: u64 = 1000;
/// Longest name that the server takes.
const LONGEST_NAME: usize = 128;

/// Upload a file, so that jobs can name it as `upload:NAME`.
///
/// The ending of the name tells the format, like that of a file's. What has the name already is
/// replaced; jobs that were posted before keep what they had.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Send {
    /// The file, on this machine
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Its name on the server [default: the name of the file]
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// List the uploaded datasets.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct List {
    /// How many [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Show an uploaded dataset.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Show {
    /// Its name
    #[arg(value_parser = name)]
    name: String,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Delete an uploaded dataset. Jobs that were posted with it go on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Delete {
    /// Its name
    #[arg(value_parser = name)]
    name: String,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: [Column; 4] = [
    Column::name("name", 0),
    Column::number("size", 0),
    Column::number("age", 1),
    Column::text("digest", 2),
];

/// The rule of the server, checked here because the name becomes a part of the URL.
fn name(text: &str) -> Result<String, String> {
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if begins_well && text.len() <= LONGEST_NAME && text.chars().all(allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "a name is 1 to {LONGEST_NAME} of A-Z, a-z, 0-9, `.`, `_` and `-`, the first a letter \
             or a digit"
        ))
    }
}

fn path(name: &str) -> String {
    format!("/datasets/{name}")
}

pub(super) async fn send(send: &Send) -> Outcome {
    let name = if let Some(name) = &send.name {
        name.clone()
    } else {
        let file = send.file.file_name().unwrap_or_default();
        name(&file.to_string_lossy()).map_err(|rule| {
            Failure::Usage(format!(
                "the name of the file does not do; give --name: {rule}"
            ))
        })?
    };
    // Of this machine and no fault of the server's.
    let readable = std::fs::File::open(&send.file).and_then(|file| file.metadata());
    let metadata = readable.map_err(|error| {
        Failure::Failed(format!("cannot read {}: {error}", send.file.display()))
    })?;
    if !metadata.is_file() {
        return Err(Failure::Failed(format!(
            "{} is not a file; upload the files of a directory one by one",
            send.file.display()
        )));
    }
    let bar = transfer_bar();
    let client = send.server.client()?;
    let answer = client
        .put_file::<Upload>(&path(&name), &send.file, &bar)
        .await?;
    bar.finish_and_clear();
    if send.json {
        output::line(answer.text);
    } else {
        output::line(line(&answer.value));
        output::line(format_args!("score it with --dataset upload:{name}"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn list(list: &List) -> Outcome {
    let client = list.server.client()?;
    let page = client.rows("/datasets", &[], list.limit, PAGE).await?;
    if list.json {
        output::json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    let uploads: Vec<Upload> = parsed(&page.items)?;
    if uploads.is_empty() {
        output::line("no uploaded datasets");
        return Ok(ExitCode::SUCCESS);
    }
    let now = Utc::now();
    let rows: Vec<_> = uploads
        .iter()
        .map(|upload| {
            vec![
                upload.name.clone(),
                bytes(upload.bytes),
                age(now - upload.created_at),
                upload.digest.clone(),
            ]
        })
        .collect();
    output::line(table::render(&COLUMNS, &rows, output::width()));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn show(show: &Show) -> Outcome {
    let client = show.server.client()?;
    let answer = client
        .get::<Upload>(&path(&show.name), Retry::Interrupted)
        .await?;
    if show.json {
        output::line(answer.text);
    } else {
        output::line(line(&answer.value));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn delete(delete: &Delete) -> Outcome {
    let client = delete.server.client()?;
    let answer = client
        .call::<Upload>(
            Method::DELETE,
            &path(&delete.name),
            Retry::Interrupted,
            |request| request,
        )
        .await?;
    if delete.json {
        output::line(answer.text);
    } else {
        output::line(format_args!("{} deleted", delete.name));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(upload: &Upload) -> String {
    format!(
        "{}  {}  {}  uploaded {}",
        upload.name,
        bytes(upload.bytes),
        upload.digest,
        upload.created_at.format("%Y-%m-%d %H:%M:%S UTC")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_server() {
        for good in ["a", "chats.jsonl.gz", "A-1_b"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", ".a", "a/b", "a b", "é", &"a".repeat(129)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
