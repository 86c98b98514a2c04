//! `assay archive`.

use crate::failure::{EXIT_CODES, Outcome};
use crate::saved::SaveArgs;

/// Save all that a job has answered as a zip file.
///
/// It holds the job and its results as JSON and the documents as Parquet, also the tokens of a job
/// that was submitted with --token-output. The job must have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Archive {
    #[command(flatten)]
    args: SaveArgs,
}

pub(crate) async fn run(archive: &Archive) -> Outcome {
    archive.args.save("archive", "zip").await
}
