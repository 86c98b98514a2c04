//! `assay report`.

use crate::failure::{EXIT_CODES, Outcome};
use crate::saved::SaveArgs;

/// Save the report of a job: one HTML file to read, print and pass on.
///
/// Results with error bars, how the documents are spread, groups, speed, what its gate says,
/// warnings, and all that the numbers were made from. It loads nothing and runs no script. The job
/// must have ended.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Report {
    #[command(flatten)]
    args: SaveArgs,
}

pub(crate) async fn run(report: &Report) -> Outcome {
    report.args.save("report", "html").await
}
