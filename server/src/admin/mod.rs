//! `assay-server keys` and `assay-server projects`: what whoever has the database may do without a
//! key. Both bring the schema up to date first, as `serve` does.

mod keys;
mod projects;

pub use keys::{KeysConfig, manage_keys};
pub use projects::{ProjectsConfig, manage_projects};

use std::io::Write;

use anyhow::Context;
use assay_store::{Actor, Project, ProjectStore, Store};

use crate::DatabaseUrl;
use crate::database;

async fn connect(url: &DatabaseUrl) -> anyhow::Result<Store> {
    let store = database::connect(url).await?;
    store
        .migrate()
        .await
        .context("cannot bring the schema up to date")?;
    Ok(store)
}

async fn project(store: &Store, name: &str) -> anyhow::Result<Project> {
    store.project_named(name).await?.with_context(|| {
        format!(
            "there is no project {name:?}; `assay-server projects list` lists them, `assay-server \
             projects create {name}` makes it"
        )
    })
}

/// The ledger as the project sees it. Who acts is no key, and there is no request.
async fn within(store: &Store, name: &str) -> anyhow::Result<ProjectStore> {
    let project = project(store, name).await?.id;
    Ok(store.within(Actor {
        project,
        key: None,
        request: None,
    }))
}

/// Prints lines. `print!` panics where a reader such as `head` has gone.
fn print(lines: &[String]) -> anyhow::Result<()> {
    let mut text = lines.join("\n");
    text.push('\n');
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.context("cannot print the answer")
}

/// Columns of equal width, two spaces between them.
fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> Vec<String> {
    let heads = heads.map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(widths);
            let line: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            line.join("  ").trim_end().to_owned()
        })
        .collect()
}
