//! Comparisons of two jobs, paired by document.

mod gate;
mod matching;
mod numbers;
mod options;
mod verdict;

use assay_api::{
    Comparison, ComparisonRequest, ErrorCode, Job, JobId, JobResult, JobSelector, JobState,
};
use assay_store::{JobFilter, ProjectStore, RowFacts, StoreError};

pub(crate) use self::gate::{Posted, check as check_gate, decide, resolve};
use self::matching::matches;
use crate::error::ApiError;
use crate::faults::Faults;
use crate::query::Tag;

/// Documents that one of the lists of a comparison names at most.
const MOST_DOCUMENTS: u32 = 1000;

/// One of the two jobs.
pub(crate) struct Side {
    /// The job.
    job: Job,
    /// Its results.
    result: JobResult,
    /// What the ledger knows of each row of the results.
    facts: Vec<RowFacts>,
}

impl Side {
    /// Nothing of a row changes once it is finished, so the three need not be of one moment.
    async fn read(store: &ProjectStore, id: JobId) -> Result<Option<Self>, StoreError> {
        let (Some(job), Some(result)) = (store.job(id).await?, store.result(id).await?) else {
            return Ok(None);
        };
        let facts = store.row_facts(id).await?;
        Ok(Some(Self { job, result, facts }))
    }
}

/// Compares two jobs that have ended.
///
/// # Errors
/// `E0002` of a job that is not there, `E0012` of one that has not ended, `E0014` if they measured
/// something else or in another way, `E0003` of other fields.
pub(crate) async fn compare(
    store: &ProjectStore,
    request: &ComparisonRequest,
) -> Result<Comparison, ApiError> {
    check(request)?;
    let baseline = match find(store, &request.baseline, Some(request.candidate)).await? {
        Some(id) => Side::read(store, id).await?,
        None => None,
    };
    let baseline = baseline.ok_or_else(|| missing("baseline", &request.baseline))?;
    let candidate = Side::read(store, request.candidate).await?;
    let candidate =
        candidate.ok_or_else(|| missing("candidate", &JobSelector::Id(request.candidate)))?;
    let (matches, mut warnings) = matches(&baseline, &candidate, &request.datasets)?;
    let mut datasets = Vec::with_capacity(matches.len());
    for found in matches {
        let documents = |side: &Side, row: usize| {
            let row = u32::try_from(row).expect("a job has few rows");
            store.documents(side.job.id, row, 0, u32::MAX)
        };
        let before = documents(&baseline, found.baseline).await?;
        let now = documents(&candidate, found.candidate).await?;
        let pair = numbers::Rows::of(&found, &baseline, &candidate);
        let (limit, listed) = (request.max_increase, request.documents as usize);
        let compared =
            tokio::task::spawn_blocking(move || pair.compare(&before, &now, limit, listed));
        let (dataset, warning) = compared.await??;
        warnings.extend(warning);
        datasets.push(dataset);
    }
    Ok(Comparison {
        baseline: baseline.job.id,
        candidate: candidate.job.id,
        verdict: verdict::overall(&datasets),
        datasets,
        warnings,
    })
}

fn check(request: &ComparisonRequest) -> Result<(), ApiError> {
    let mut faults = Faults::default();
    if let Some(increase) = request.max_increase {
        gate::check_increase("max_increase", increase, &mut faults);
    }
    faults.require(
        request.documents <= MOST_DOCUMENTS,
        "documents",
        format!("is {}; it takes 0 to {MOST_DOCUMENTS}", request.documents),
    );
    faults.require(
        request.baseline != JobSelector::Id(request.candidate),
        "baseline",
        "is the candidate itself; name another job",
    );
    if let JobSelector::Tag(tag) = &request.baseline {
        let tag = Tag::try_from(tag.clone());
        faults.require(tag.is_ok(), "baseline.tag", tag.err().unwrap_or_default());
    }
    faults.into_result()
}

fn missing(field: &str, selector: &JobSelector) -> ApiError {
    let detail = match selector {
        JobSelector::Id(id) => format!("there is no job {id}; GET /jobs lists the jobs"),
        JobSelector::Tag(tag) => format!(
            "no succeeded job that is older than the candidate has the tag {tag:?}; GET \
             /jobs?tag={tag} lists those that have it"
        ),
    };
    ApiError::of_field(ErrorCode::NotFound, field, detail)
}

/// The job that is selected, of those older than `before` if one is given. None if there is none,
/// and for a tag that is not one.
async fn find(
    store: &ProjectStore,
    selector: &JobSelector,
    before: Option<JobId>,
) -> Result<Option<JobId>, StoreError> {
    let tag = match selector {
        JobSelector::Id(id) => return Ok(Some(*id)),
        JobSelector::Tag(tag) => Tag::try_from(tag.clone()),
    };
    let Ok(Tag(key, value)) = tag else {
        return Ok(None);
    };
    let filter = JobFilter {
        states: vec![JobState::Succeeded],
        tag: Some((key, value)),
        ..JobFilter::default()
    };
    let newest = store.jobs(&filter, before, 1).await?;
    Ok(newest.first().map(|job| job.id))
}
