//! `assay-server keys`.

use std::env;

use anyhow::{Context, bail};
use assay_api::{Key, NewKey, Scope};
use assay_store::KeyToken;
use chrono::{DateTime, TimeDelta, Utc};
use clap::{Args, Subcommand};

use super::{connect, print, table, within};
use crate::DatabaseUrl;
use crate::routes::keys::check;

/// The settings of `assay-server keys`.
#[derive(Clone, Debug, Args)]
pub struct KeysConfig {
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
    /// Make a key and print it. It is shown this once.
    Create(Create),
    /// List the keys of a project, without their secrets, the newest first.
    List(List),
    /// Revoke a key, from this moment on.
    Revoke(Revoke),
}

#[derive(Clone, Debug, Args)]
struct Create {
    /// The project that it acts in.
    #[arg(long, value_name = "NAME", default_value = "default")]
    project: String,

    /// Who or what it is for.
    #[arg(long, value_name = "NAME")]
    name: String,

    /// What it may do: `read`, `submit` or `admin`, each with what those before it may.
    #[arg(long, value_name = "SCOPE")]
    scope: Scope,

    /// Days until it ends; without this it does not.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,

    /// Take the key from this environment variable, and print nothing of it: `assay_` and at least
    /// 32 letters or digits at random.
    #[arg(long, value_name = "VARIABLE")]
    from_env: Option<String>,

    /// With `--from-env`: do nothing, and succeed, where the key is there already.
    #[arg(long, requires = "from_env")]
    if_absent: bool,
}

#[derive(Clone, Debug, Args)]
struct List {
    /// The project.
    #[arg(long, value_name = "NAME", default_value = "default")]
    project: String,

    /// Print each key as a JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
struct Revoke {
    /// Id of the key.
    id: String,

    /// The project that it is of.
    #[arg(long, value_name = "NAME", default_value = "default")]
    project: String,
}

/// Makes, lists or revokes keys.
///
/// # Errors
/// The database does not answer, or there is no such project or key; the text says which.
pub async fn manage_keys(config: &KeysConfig) -> anyhow::Result<()> {
    let url = &config.database_url;
    if url.expose().is_empty() {
        bail!("name the database of the ledger by DATABASE_URL or --database-url");
    }
    match &config.command {
        Command::Create(create) => make(url, create).await,
        Command::List(list) => show(url, list).await,
        Command::Revoke(revoke) => end(url, revoke).await,
    }
}

async fn make(url: &DatabaseUrl, create: &Create) -> anyhow::Result<()> {
    let new = NewKey {
        name: create.name.clone(),
        scope: create.scope,
        expires_at: create
            .days
            .map(|days| Utc::now() + TimeDelta::days(days.into())),
    };
    check(&new)?;
    let Some(variable) = &create.from_env else {
        let ledger = within(&connect(url).await?, &create.project).await?;
        let created = ledger.create_key(&new).await?;
        eprintln!(
            "key {} of the project {}, scope {}; it is shown this once:",
            created.key.id, create.project, new.scope
        );
        return print(&[created.secret]);
    };
    let text = env::var(variable).with_context(|| format!("{variable} has no key"))?;
    let token: KeyToken = text
        .trim()
        .parse()
        .map_err(|form| anyhow::anyhow!("{variable} has no key: {form}"))?;
    let ledger = within(&connect(url).await?, &create.project).await?;
    match ledger.store_key(&new, &token).await? {
        Some(key) => print(&[format!("key {} is stored", key.id)]),
        None if create.if_absent => print(&[format!("key {} is there already", token.id())]),
        None => bail!(
            "there is a key {} already; --if-absent takes that as done",
            token.id()
        ),
    }
}

async fn show(url: &DatabaseUrl, list: &List) -> anyhow::Result<()> {
    let ledger = within(&connect(url).await?, &list.project).await?;
    let keys = ledger.keys(None, u32::MAX).await?;
    if list.json {
        let lines: Result<Vec<_>, _> = keys.iter().map(serde_json::to_string).collect();
        return lines.map_err(Into::into).and_then(|lines| print(&lines));
    }
    let rows = keys.into_iter().map(row).collect();
    print(&table(
        ["id", "scope", "name", "created", "last used", "ends"],
        rows,
    ))
}

fn row(key: Key) -> [String; 6] {
    let day = |at: DateTime<Utc>| at.format("%Y-%m-%d").to_string();
    let minute = |at: DateTime<Utc>| at.format("%Y-%m-%d %H:%M").to_string();
    let ends = match (key.revoked_at, key.expires_at) {
        (Some(at), _) => format!("revoked {}", day(at)),
        (None, Some(at)) => day(at),
        (None, None) => "never".to_owned(),
    };
    [
        key.id,
        key.scope.to_string(),
        key.name,
        day(key.created_at),
        key.last_used_at.map_or_else(|| "never".to_owned(), minute),
        ends,
    ]
}

async fn end(url: &DatabaseUrl, revoke: &Revoke) -> anyhow::Result<()> {
    let ledger = within(&connect(url).await?, &revoke.project).await?;
    let revoked = ledger.revoke_key(&revoke.id).await?;
    let key = revoked.with_context(|| {
        format!(
            "the project {} has no key {:?}; `assay-server keys list --project {}` lists them",
            revoke.project, revoke.id, revoke.project
        )
    })?;
    print(&[format!("key {} ({}) is revoked", key.id, key.name)])
}
