//! Gates: an earlier job that a job is held against.

use assay_api::{
    Comparison, ComparisonRequest, DatasetRef, Dtype, ErrorCode, Gate, GateRequest, GateResult,
    Job, JobSelector, Method, Verdict,
};
use assay_store::ProjectStore;

use super::{compare, find};
use crate::error::ApiError;
use crate::faults::Faults;
use crate::query::Tag;

/// The largest increase that can be asked for, in nats per token. Nobody means more.
const LARGEST_INCREASE: f64 = 100.0;
/// Documents that each of the lists of a gate's comparison names.
const DOCUMENTS: u32 = 10;

/// Checks what can be checked of a gate without the ledger.
pub(crate) fn check(gate: &GateRequest, faults: &mut Faults) {
    check_increase("gate.max_increase", gate.max_increase, faults);
}

pub(super) fn check_increase(field: &str, increase: f64, faults: &mut Faults) {
    faults.require(
        (0.0..=LARGEST_INCREASE).contains(&increase),
        field,
        format!(
            "is {increase}; it takes the largest increase of the mean NLL that passes, 0 to \
             {LARGEST_INCREASE} nats per token"
        ),
    );
}

/// What is known of a job whose gate is resolved.
pub(crate) struct Posted<'a> {
    pub(crate) datasets: &'a [DatasetRef],
    pub(crate) methods: &'a [Method],
    pub(crate) dtype: Dtype,
}

/// The gate of a job that is posted, its baseline found. What is known to make them incomparable is
/// refused now, and not when everything is computed.
///
/// # Errors
/// `E0003` of every field of the gate that is wrong, or the ledger does not answer.
pub(crate) async fn resolve(
    store: &ProjectStore,
    gate: &GateRequest,
    posted: &Posted<'_>,
) -> Result<Gate, ApiError> {
    let mut faults = Faults::default();
    let names: Vec<&str> = posted.datasets.iter().map(DatasetRef::name).collect();
    for (index, name) in gate.datasets.iter().enumerate() {
        faults.require(
            names.contains(&name.as_str()),
            &format!("gate.datasets[{index}]"),
            format!("the job has no dataset {name:?}; it has {names:?}"),
        );
    }
    let baseline = match find(store, &gate.baseline, None).await? {
        Some(id) => store.job(id).await?,
        None => None,
    };
    match &baseline {
        None => faults.require(false, "gate.baseline", missing(&gate.baseline)),
        Some(job) => fits(job, posted, &mut faults),
    }
    faults.into_result()?;
    Ok(Gate {
        baseline: baseline.expect("its absence is a fault").id,
        max_increase: gate.max_increase,
        datasets: gate.datasets.clone(),
    })
}

fn missing(selector: &JobSelector) -> String {
    match selector {
        JobSelector::Id(id) => format!("there is no job {id}; GET /jobs lists the jobs"),
        JobSelector::Tag(tag) => match Tag::try_from(tag.clone()) {
            Err(detail) => format!("`tag` {detail}"),
            Ok(_) => format!(
                "no succeeded job has the tag {tag:?}; post the baseline first and wait for it, or \
                 name a job by its id"
            ),
        },
    }
}

fn fits(baseline: &Job, posted: &Posted<'_>, faults: &mut Faults) {
    let field = "gate.baseline";
    if let Some(why) = baseline.why_unsuccessful("the job") {
        faults.require(false, field, format!("{why}; name one that succeeds"));
    }
    faults.require(
        baseline.dtype == posted.dtype,
        field,
        format!(
            "was computed in {}, and this job will be in {}; set the same `dtype` in both",
            baseline.dtype.as_str(),
            posted.dtype.as_str()
        ),
    );
    let methods = baseline.method.as_slice();
    faults.require(
        posted.methods.iter().all(|method| methods.contains(method)),
        field,
        format!(
            "was scored by {}, and this job will be by {}; use the same `method` in both",
            json(methods),
            json(posted.methods)
        ),
    );
}

fn json(methods: &[Method]) -> String {
    serde_json::to_string(methods).expect("methods are plain data")
}

/// What the gate of a job says, as far as it can be said.
///
/// # Errors
/// The job has no gate, or the ledger does not answer.
pub(crate) async fn decide(store: &ProjectStore, job: Job) -> Result<GateResult, ApiError> {
    let Some(gate) = job.gate.clone() else {
        return Err(ApiError::of_field(
            ErrorCode::NotFound,
            "gate",
            format!(
                "job {} was posted without a gate; POST /comparisons with `max_increase` judges it \
                 all the same",
                job.id
            ),
        ));
    };
    let (verdict, reason, comparison) = judge(store, &job, &gate).await?;
    Ok(GateResult {
        job_id: job.id,
        gate,
        verdict,
        reason,
        comparison,
    })
}

type Judgement = (Option<Verdict>, String, Option<Comparison>);

async fn judge(store: &ProjectStore, job: &Job, gate: &Gate) -> Result<Judgement, ApiError> {
    let inconclusive = |reason| (Some(Verdict::Inconclusive), reason, None);
    let baseline = store.job(gate.baseline).await?;
    let Some(baseline) = baseline else {
        return Ok(inconclusive(format!(
            "there is no job {} any more",
            gate.baseline
        )));
    };
    for (which, job) in [("the job", job), ("the baseline", &baseline)] {
        if !job.state.is_final() {
            return Ok((None, format!("{which} is {}", job.state.as_str()), None));
        }
    }
    for (which, job) in [("the job", job), ("the baseline", &baseline)] {
        if let Some(why) = job.why_unsuccessful(which) {
            return Ok(inconclusive(why));
        }
    }
    let request = ComparisonRequest {
        baseline: JobSelector::Id(gate.baseline),
        candidate: job.id,
        datasets: gate.datasets.clone(),
        max_increase: Some(gate.max_increase),
        documents: DOCUMENTS,
    };
    match compare(store, &request).await {
        Ok(comparison) => Ok((comparison.verdict, reason(&comparison), Some(comparison))),
        Err(ApiError::Problem(problem)) if problem.code == ErrorCode::NotComparable => {
            Ok(inconclusive(problem.detail))
        }
        Err(error) => Err(error),
    }
}

/// The reasons of the datasets that decided.
fn reason(comparison: &Comparison) -> String {
    let decisive = comparison
        .datasets
        .iter()
        .filter(|dataset| dataset.verdict == comparison.verdict);
    let reasons: Vec<String> = decisive
        .map(|d| {
            let convention = d.method.convention.as_str();
            format!(
                "{} ({convention}): {}",
                d.name,
                d.reason.as_deref().unwrap_or_default()
            )
        })
        .collect();
    reasons.join(". ")
}
