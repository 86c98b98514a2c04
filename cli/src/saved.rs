//! Files that the server makes of a job, saved here.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use assay_api::JobId;
use serde_json::json;
use tokio::fs::File;

use crate::aside::aside;
use crate::client::{ServerArgs, job_id};
use crate::failure::{Failure, Outcome};
use crate::follow::transfer_bar;
use crate::numbers::bytes;
use crate::output;

/// Which job, and where to.
#[derive(Debug, clap::Args)]
pub(crate) struct SaveArgs {
    /// Id of the job
    #[arg(value_name = "JOB", value_parser = job_id)]
    id: JobId,
    /// Where to write it; in a directory it is named after the job [default: .]
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = ".",
        hide_default_value = true
    )]
    output: PathBuf,
    /// Print the file and its size as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

impl SaveArgs {
    /// Saves what `GET /jobs/{id}/{what}` answers; in a directory as `{id}.{extension}`.
    pub(crate) async fn save(&self, what: &str, extension: &str) -> Outcome {
        let path = if self.output.is_dir() {
            self.output.join(format!("{}.{extension}", self.id))
        } else {
            self.output.clone()
        };
        let written = self.download(what, &path).await?;
        if self.json {
            output::json(&json!({"file": path, "bytes": written}));
        } else {
            output::line(format_args!("{} ({})", path.display(), bytes(written)));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn download(&self, what: &str, path: &Path) -> Result<u64, Failure> {
        let unwritable = |error: &dyn std::fmt::Display| {
            Failure::Failed(format!("cannot write {}: {error}", path.display()))
        };
        // Written aside, so that the file is whole or not there.
        let aside = aside(path).map_err(|error| unwritable(&error))?;
        let file = aside.reopen().map_err(|error| unwritable(&error))?;
        let client = self.server.client()?;
        let bar = transfer_bar();
        let url = format!("/jobs/{}/{what}", self.id);
        let written = client
            .download(&url, &mut File::from_std(file), &bar)
            .await?;
        bar.finish_and_clear();
        aside.persist(path).map_err(|error| unwritable(&error))?;
        Ok(written)
    }
}
