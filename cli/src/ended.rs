//! What is said of jobs that ended without success.

use std::process::ExitCode;

use assay_api::Job;

use crate::failure::{Failure, Outcome};

/// What a command about one job ends with after it has shown what there is.
pub(crate) fn outcome(job: &Job) -> Outcome {
    match job.why_unsuccessful("the job") {
        Some(why) => Err(Failure::Failed(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}
