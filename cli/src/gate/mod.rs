//! `assay gate`.

mod judged;
mod junit;

use std::path::PathBuf;
use std::process::ExitCode;

use assay_api::{
    ComparisonRequest, ErrorCode, GateRequest, GateResult, Job, JobId, JobSelector, Problem,
};
use tokio::signal::unix::{SignalKind, signal};

use self::judged::Judged;
use crate::client::{Answer, Client, ClientError, Retry, ServerArgs, job_id};
use crate::failure::{Failure, Outcome};
use crate::selector::{increase, selector};
use crate::{compare, follow, jobs, output};

/// The end of `assay gate --help`.
const EXIT_CODES: &str = "Exit codes:
  0    PASS: the 95 % interval of each increase lies below the limit
  1    FAIL: the interval of at least one lies above
  2    INCONCLUSIVE: an interval holds the limit, the jobs cannot be compared, or one of
       them did not succeed; also wrong usage, and a FILE that cannot be written
  3    the server cannot be reached or refused the request
  130  interrupted; the jobs go on";

/// Wait for a job and say whether it is worse than its baseline: PASS, FAIL or INCONCLUSIVE.
///
/// The gate is the one that the job was submitted with (--gate-baseline of `assay submit`), or that
/// of --baseline and --max-increase. Both jobs are waited for. A line for each dataset and method
/// says by how much the mean NLL rose, with the 95 % interval; the last line is the verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Gate {
    /// Id of the job that is judged
    #[arg(value_name = "JOB", value_parser = job_id)]
    id: JobId,
    /// Job to hold it against: its id, or KEY:VALUE for the newest older one with this tag that has
    /// succeeded
    #[arg(long, value_name = "JOB|TAG", requires = "max_increase", value_parser = selector)]
    baseline: Option<JobSelector>,
    /// Largest increase of the mean NLL that passes, in nats per token; 0.01 is 1 % of perplexity
    #[arg(long, value_name = "X", requires = "baseline", value_parser = increase,
        allow_negative_numbers = true)]
    max_increase: Option<f64>,
    /// Name of a dataset to judge; may be given again [default: all]
    #[arg(long = "dataset", value_name = "NAME", requires = "baseline")]
    datasets: Vec<String>,
    /// Also write the verdict as JUnit XML: a test case for each line, FAIL as a failure and
    /// INCONCLUSIVE as an error
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print JSON: what GET /jobs/{id}/gate answers, or the same of the gate given here
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

impl Gate {
    /// The gate of the command line, if there is one.
    fn given(&self) -> Option<GateRequest> {
        Some(GateRequest {
            baseline: self.baseline.clone()?,
            max_increase: self.max_increase?,
            datasets: self.datasets.clone(),
        })
    }
}

pub(crate) async fn run(gate: &Gate) -> Outcome {
    if let Some(file) = &gate.junit {
        // Before hours of waiting.
        junit::check(file)?;
    }
    let client = gate.server.client()?;
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Failure::Undecided(format!("cannot listen for SIGINT: {error}")))?;
    let judged = tokio::select! {
        judged = judge(&client, gate) => judged?,
        _ = interrupt.recv() => {
            return Err(Failure::Interrupted("interrupted; the jobs go on".to_owned()));
        }
    };
    if gate.json {
        output::line(&judged.json);
    } else {
        output::line(judged.render(output::width()));
    }
    if let Some(file) = &gate.junit {
        junit::write(&judged, file)?;
    }
    Ok(ExitCode::from(judged.exit_code()))
}

async fn judge(client: &Client, gate: &Gate) -> Result<Judged, Failure> {
    match gate.given() {
        Some(given) => Ok(by_given(client, gate.id, &given).await?),
        None => by_stored(client, gate.id).await,
    }
}

/// By the gate of the command line, once the jobs have ended.
async fn by_given(client: &Client, id: JobId, given: &GateRequest) -> Result<Judged, ClientError> {
    // Both are looked for before one is waited for: an id may be mistyped.
    let mut named = vec![(
        "the job",
        jobs::get(client, id, Retry::Interrupted).await?.value,
    )];
    if let JobSelector::Id(baseline) = given.baseline {
        let baseline = jobs::get(client, baseline, Retry::Always).await?.value;
        named.push(("the baseline", baseline));
    }
    for (which, job) in named {
        let job = wait(client, which, job).await?;
        if let Some(why) = job.why_unsuccessful(which) {
            return Ok(Judged::inconclusive(id, given, why, Vec::new()));
        }
    }
    let request = ComparisonRequest {
        baseline: given.baseline.clone(),
        candidate: id,
        datasets: given.datasets.clone(),
        max_increase: Some(given.max_increase),
        documents: compare::DOCUMENTS,
    };
    match compare::post(client, &request, Retry::Always).await {
        Ok(answer) => Ok(Judged::of_comparison(given, answer)),
        Err(ClientError::Refused(problem)) if problem.code == ErrorCode::NotComparable => {
            let Problem { detail, errors, .. } = *problem;
            let reason = if errors.is_empty() {
                detail
            } else {
                "the jobs cannot be compared".to_owned()
            };
            Ok(Judged::inconclusive(id, given, reason, errors))
        }
        Err(error) => Err(error),
    }
}

/// By the gate that the job was posted with.
async fn by_stored(client: &Client, id: JobId) -> Result<Judged, Failure> {
    let path = format!("/jobs/{id}/gate");
    let patient = client.patient();
    let mut answer: Answer<GateResult> = patient.get(&path, Retry::Interrupted).await?;
    // The job first: one that has failed needs no baseline to be judged.
    let baseline = answer.value.gate.baseline;
    for (which, id) in [("the job", id), ("the baseline", baseline)] {
        if answer.value.verdict.is_none() {
            let job = jobs::get(client, id, Retry::Always).await?.value;
            wait(client, which, job).await?;
            answer = patient.get(&path, Retry::Always).await?;
        }
    }
    Judged::of_gate(answer).map_err(Failure::Undecided)
}

/// Follows the job to its end, unless it has ended.
async fn wait(client: &Client, which: &str, job: Job) -> Result<Job, ClientError> {
    if job.state.is_final() {
        return Ok(job);
    }
    eprintln!("assay: waiting for {which}: {}", job.id);
    Ok(follow::follow(client, job).await?.value)
}
