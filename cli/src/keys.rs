//! `assay keys`.

use std::process::ExitCode;

use assay_api::{CreatedKey, Key, NewKey, Scope};
use chrono::{DateTime, TimeDelta, Utc};
use clap::Subcommand;
use reqwest::Method;

use crate::client::{Retry, ServerArgs};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::numbers::age;
use crate::output;
use crate::table::{self, Column};

/// Keys in a page of the server.
const PAGE: u64 = 1000;

/// Make, list and revoke keys of the project, with a key of the scope `admin`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(Create),
    List(List),
    Revoke(Revoke),
}

/// Make a key and print it; it is shown this once.
#[derive(Debug, clap::Args)]
struct Create {
    /// Who or what it is for
    #[arg(long, value_name = "NAME")]
    name: String,
    /// What it may do: read, submit or admin, each with what those before it may
    #[arg(long, value_name = "SCOPE")]
    scope: Scope,
    /// Days until it ends; without this it does not
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// List keys, without their secrets, the newest first.
#[derive(Debug, clap::Args)]
struct List {
    /// How many; all without this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Revoke a key, from this moment on.
#[derive(Debug, clap::Args)]
struct Revoke {
    /// Id of the key, as `assay keys list` shows it
    #[arg(value_parser = key_id)]
    id: String,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The id of a key on the command line. Whoever gives the key itself has a secret in its history.
fn key_id(text: &str) -> Result<String, String> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    plain.then(|| text.to_owned()).ok_or_else(|| {
        "the id of a key has letters and digits alone; `assay keys list` lists the ids".to_owned()
    })
}

const COLUMNS: [Column; 5] = [
    Column::name("id", 0),
    Column::text("scope", 0),
    Column::name("name", 1),
    Column::text("used", 2),
    Column::text("ends", 3),
];

pub(crate) async fn run(keys: &Keys) -> Outcome {
    match &keys.command {
        Command::Create(create) => make(create).await,
        Command::List(list) => show(list).await,
        Command::Revoke(revoke) => end(revoke).await,
    }
}

async fn make(create: &Create) -> Outcome {
    let new = NewKey {
        name: create.name.clone(),
        scope: create.scope,
        expires_at: create
            .days
            .map(|days| Utc::now() + TimeDelta::days(days.into())),
    };
    let client = create.server.client()?;
    let answer = client
        .call::<CreatedKey>(Method::POST, "/keys", Retry::Interrupted, |request| {
            request.json(&new)
        })
        .await?;
    if create.json {
        output::line(answer.text);
    } else {
        let id = &answer.value.key.id;
        client.say(&format!(
            "key {id}, scope {}; it is shown this once:",
            new.scope
        ));
        output::line(answer.value.secret);
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(list: &List) -> Outcome {
    let client = list.server.client()?;
    let page = client.rows("/keys", &[], list.limit, PAGE).await?;
    if list.json {
        output::json(&page);
        return Ok(ExitCode::SUCCESS);
    }
    let keys = page.items.iter().map(|item| {
        serde_json::from_str(item.get()).map_err(|error| {
            Failure::Failed(format!(
                "cannot read a key of the list: {error}; are server and client of one version?"
            ))
        })
    });
    let keys: Vec<Key> = keys.collect::<Result<_, _>>()?;
    if keys.is_empty() {
        output::line("no keys");
        return Ok(ExitCode::SUCCESS);
    }
    let now = Utc::now();
    let rows: Vec<_> = keys.iter().map(|key| row(key, now)).collect();
    output::line(table::render(&COLUMNS, &rows, output::width()));
    Ok(ExitCode::SUCCESS)
}

fn row(key: &Key, now: DateTime<Utc>) -> Vec<String> {
    let ago = |at: DateTime<Utc>| format!("{} ago", age(now - at));
    let ends = match (key.revoked_at, key.expires_at) {
        (Some(at), _) => format!("revoked {}", ago(at)),
        (None, Some(at)) => at.format("%Y-%m-%d").to_string(),
        (None, None) => "never".to_owned(),
    };
    vec![
        key.id.clone(),
        key.scope.to_string(),
        key.name.clone(),
        key.last_used_at.map_or_else(|| "never".to_owned(), ago),
        ends,
    ]
}

async fn end(revoke: &Revoke) -> Outcome {
    let client = revoke.server.client()?;
    let path = format!("/keys/{}", revoke.id);
    let answer = client
        .call::<Key>(Method::DELETE, &path, Retry::Interrupted, |request| request)
        .await?;
    if revoke.json {
        output::line(answer.text);
    } else {
        output::line(format_args!("key {} is revoked", revoke.id));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_the_key_is_of_use() {
        let now = Utc::now();
        let mut key = Key {
            id: "019af00d".to_owned(),
            name: "ci".to_owned(),
            scope: Scope::Submit,
            created_at: now,
            expires_at: None,
            last_used_at: None,
            revoked_at: None,
        };
        assert_eq!(
            row(&key, now),
            ["019af00d", "submit", "ci", "never", "never"]
        );
        key.revoked_at = Some(now);
        assert!(row(&key, now)[4].starts_with("revoked"));
    }

    #[test]
    fn a_whole_key_is_no_id() {
        assert_eq!(key_id("019af00d").as_deref(), Ok("019af00d"));
        assert!(
            !key_id("assay_019af00d_5ec2e7")
                .unwrap_err()
                .contains("5ec2e7")
        );
    }
}
