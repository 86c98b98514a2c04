//! `assay-server projects`.

use std::str::FromStr;

use anyhow::{Context, bail};
use assay_store::{Project, ProjectChanges};
use clap::{Args, Subcommand};

use super::{connect, print, table};
use crate::DatabaseUrl;

/// The settings of `assay-server projects`.
#[derive(Clone, Debug, Args)]
pub struct ProjectsConfig {
    #[command(subcommand)]
    command: Command,

    /// The PostgreSQL database of the ledger, as for `serve`.
    #[arg(
        long,
        env = "DATABASE_URL",
        value_name = "URL",
        hide_env_values = true,
        global = true,
        required = false,
        default_value = ""
    )]
    database_url: DatabaseUrl,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Make a project. It has no quotas until they are set.
    Create(Change),
    /// Change the priority or the quotas of a project; what is not named stays.
    Set(Change),
    /// List the projects, their priorities and quotas.
    List,
}

#[derive(Clone, Debug, Args)]
struct Change {
    /// Name of the project: 1 to 63 of `a-z`, `0-9` and `-`, the first a letter or a digit.
    #[arg(value_parser = name)]
    name: String,

    /// Added to the priority of each of its jobs, also of those that wait now.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1000..=1000)
    )]
    priority: Option<i32>,

    /// Jobs that it may have without having ended; or `unlimited`.
    #[arg(long, value_name = "N")]
    max_unfinished_jobs: Option<Limit<u32>>,

    /// Tokens that may be planned for its jobs in a day of UTC; or `unlimited`.
    #[arg(long, value_name = "N")]
    tokens_per_day: Option<Limit<u64>>,
}

/// A number, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit<N>(Option<N>);

impl<N: FromStr> FromStr for Limit<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "unlimited" => Ok(Self(None)),
            _ => text
                .parse()
                .map(|limit| Self(Some(limit)))
                .map_err(|_| format!("{text:?} is neither a number from 0 on nor `unlimited`")),
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let sound = (1..=63).contains(&text.len())
        && plain(text.as_bytes()[0])
        && text.bytes().all(|byte| plain(byte) || byte == b'-');
    sound.then(|| text.to_owned()).ok_or_else(|| {
        "a name is 1 to 63 of `a-z`, `0-9` and `-`, the first a letter or a digit".to_owned()
    })
}

/// Makes, changes or lists projects.
///
/// # Errors
/// The database does not answer, or the project is there already or is not; the text says which.
pub async fn manage_projects(config: &ProjectsConfig) -> anyhow::Result<()> {
    if config.database_url.expose().is_empty() {
        bail!("name the database of the ledger by DATABASE_URL or --database-url");
    }
    let store = connect(&config.database_url).await?;
    let change = match &config.command {
        Command::List => {
            let rows = store.projects().await?.into_iter().map(row).collect();
            return print(&table(
                ["project", "priority", "unfinished jobs", "tokens per day"],
                rows,
            ));
        }
        Command::Create(change) => {
            if !store.create_project(&change.name).await? {
                bail!(
                    "there is a project {} already; `assay-server projects set {}` changes it",
                    change.name,
                    change.name
                );
            }
            change
        }
        Command::Set(change) => change,
    };
    let changes = ProjectChanges {
        priority: change.priority,
        max_unfinished_jobs: change.max_unfinished_jobs.map(|Limit(limit)| limit),
        tokens_per_day: change.tokens_per_day.map(|Limit(limit)| limit),
    };
    let project = store.set_project(&change.name, &changes).await?;
    let project = project.with_context(|| {
        format!(
            "there is no project {}; `assay-server projects create {}` makes it",
            change.name, change.name
        )
    })?;
    print(&table(
        ["project", "priority", "unfinished jobs", "tokens per day"],
        vec![row(project)],
    ))
}

fn row(project: Project) -> [String; 4] {
    let limit =
        |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    [
        project.name,
        project.priority.to_string(),
        limit(project.max_unfinished_jobs.map(u64::from)),
        limit(project.tokens_per_day),
    ]
}
