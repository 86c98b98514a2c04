//! What is said of jobs that ended without success.

use std::process::ExitCode;

use assay_api::{Job, JobState};

use crate::failure::{Failure, Outcome};

/// Why `job`, called `which`, ended without success; none if it did not.
pub(crate) fn why(job: &Job, which: &str) -> Option<String> {
    if !job.state.is_final() || job.state == JobState::Succeeded {
        return None;
    }
    let state = job.state.as_str();
    let Some(error) = &job.error else {
        return Some(format!("{which} was {state}"));
    };
    let field = error
        .field
        .as_ref()
        .map(|field| format!("{field}: "))
        .unwrap_or_default();
    let shard = error
        .shard
        .as_ref()
        .map(|shard| format!(" (shard {} on {})", shard.shard, shard.worker))
        .unwrap_or_default();
    Some(format!(
        "{which} {state} ({}): {field}{}{shard}",
        error.code, error.detail
    ))
}

/// What a command about one job ends with after it has shown what there is.
pub(crate) fn outcome(job: &Job) -> Outcome {
    match why(job, "the job") {
        Some(why) => Err(Failure::Failed(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}
