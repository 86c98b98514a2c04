//! `assay datasets`.

mod inspect;
mod local;
mod uploads;

use clap::Subcommand;

use crate::failure::{EXIT_CODES, Outcome};

/// Look at a dataset, or keep datasets on the server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Datasets {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Inspect(Box<inspect::Inspect>),
    Upload(uploads::Send),
    List(uploads::List),
    Show(uploads::Show),
    Delete(uploads::Delete),
}

pub(crate) async fn run(datasets: &Datasets) -> Outcome {
    match &datasets.command {
        Command::Inspect(inspect) => inspect::run(inspect).await,
        Command::Upload(send) => uploads::send(send).await,
        Command::List(list) => uploads::list(list).await,
        Command::Show(show) => uploads::show(show).await,
        Command::Delete(delete) => uploads::delete(delete).await,
    }
}
