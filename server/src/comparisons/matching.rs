//! Which rows of two jobs are about the same, and what differs where none is.

use std::collections::HashSet;

use assay_api::{DatasetRef, DatasetResult, ErrorCode, JobResult, Method, Unit};

use super::{Side, options};
use crate::error::ApiError;
use crate::faults::Faults;

/// Two rows that can be compared, by their indices in the results.
pub(super) struct Match {
    pub(super) baseline: usize,
    pub(super) candidate: usize,
    pub(super) unit: Unit,
}

/// The rows of the candidate, or those of the datasets of these `names`, each with that of the
/// baseline; and what to say of them.
pub(super) fn matches(
    baseline: &Side,
    candidate: &Side,
    names: &[String],
) -> Result<(Vec<Match>, Vec<String>), ApiError> {
    require_ends(baseline, candidate)?;
    require_names(candidate, names)?;
    let mut faults = Faults::default();
    let mut differ =
        |field: &str, detail: String| faults.add(ErrorCode::NotComparable, field, detail);
    let (before, now) = (&baseline.result, &candidate.result);
    if before.dtype != now.dtype {
        differ(
            "dtype",
            format!(
                "the candidate was computed in {}, the baseline in {}; set the same `dtype` in both",
                now.dtype.as_str(),
                before.dtype.as_str()
            ),
        );
    }
    if before.numerics_version != now.numerics_version {
        differ(
            "numerics_version",
            format!(
                "is {}, in the baseline {}; score the baseline again with this version",
                now.numerics_version, before.numerics_version
            ),
        );
    }
    for method in now.method.as_slice() {
        if !before.method.as_slice().contains(method) {
            differ(
                "method",
                format!(
                    "the baseline was not scored by {}, but by {}; use the same in both",
                    json(method),
                    json(&before.method)
                ),
            );
        }
    }
    let mut warnings = job_warnings(baseline, candidate);
    let mut found = Vec::new();
    let mut faulted = HashSet::new();
    for (index, row) in now.datasets.iter().enumerate() {
        let wanted = names.is_empty() || names.contains(&row.name);
        if !wanted {
            continue;
        }
        let matched = if before.method.as_slice().contains(&row.method) {
            counterpart(baseline, candidate, index).map(Some)
        } else {
            // The method is named already; what else differs is to be named with it.
            let method = &before.method.as_slice()[0];
            same_data(baseline, candidate, index, method).map(|_| None)
        };
        match matched {
            Ok(None) => {}
            Ok(Some(matched)) => {
                if matched.unit == Unit::Byte {
                    warnings.push(format!(
                        "{}: the tokenizers differ, so what is compared is the NLL of the same \
                         bytes, not of the same tokens",
                        row.name
                    ));
                }
                found.push(matched);
            }
            // Under several methods the same is wrong once.
            Err(detail) if !faulted.insert((&row.name, detail.clone())) => {}
            Err(detail) => differ(&format!("datasets.{}", row.name), detail),
        }
    }
    faults.into_result()?;
    Ok((found, warnings))
}

fn require_ends(baseline: &Side, candidate: &Side) -> Result<(), ApiError> {
    let mut faults = Faults::default();
    for (field, side) in [("baseline", baseline), ("candidate", candidate)] {
        let state = side.job.state;
        if !state.is_final() {
            let detail = format!(
                "job {} is {}; wait until it has ended",
                side.job.id,
                state.as_str()
            );
            faults.add(ErrorCode::JobNotEnded, field, detail);
        }
    }
    faults.into_result()
}

fn require_names(candidate: &Side, names: &[String]) -> Result<(), ApiError> {
    let known: Vec<&str> = candidate
        .job
        .datasets
        .iter()
        .map(DatasetRef::name)
        .collect();
    let mut faults = Faults::default();
    for (index, name) in names.iter().enumerate() {
        faults.require(
            known.contains(&name.as_str()),
            &format!("datasets[{index}]"),
            format!("the candidate has no dataset {name:?}; it has {known:?}"),
        );
    }
    faults.into_result()
}

/// What to say of the two jobs as a whole.
fn job_warnings(baseline: &Side, candidate: &Side) -> Vec<String> {
    let (before, now) = (&baseline.result, &candidate.result);
    let mut warnings: Vec<String> = [
        baseline.job.why_unsuccessful("the baseline"),
        candidate.job.why_unsuccessful("the candidate"),
    ]
    .into_iter()
    .flatten()
    .map(|why| format!("{why}; its datasets here had been scored before"))
    .collect();
    if before.precision.is_some() || now.precision.is_some() {
        warnings.push(
            "computed with adaptive numerics: see `precision` in the results for what that changes"
                .to_owned(),
        );
    }
    if before.device_kinds != now.device_kinds {
        warnings.push(format!(
            "computed on {}, the baseline on {}: what differs in the last digits may be rounding",
            now.device_kinds.join(" and "),
            before.device_kinds.join(" and ")
        ));
    }
    if tokenizer(before) != tokenizer(now) {
        warnings.push("the digests of the tokenizers differ".to_owned());
    }
    warnings
}

/// The row of the baseline to hold against row `index` of the candidate, or what differs.
fn counterpart(baseline: &Side, candidate: &Side, index: usize) -> Result<Match, String> {
    let row = &candidate.result.datasets[index];
    let other = same_data(baseline, candidate, index, &row.method)?;
    let before = &baseline.result.datasets[other];
    let matched = |unit| Match {
        baseline: other,
        candidate: index,
        unit,
    };
    let (facts, other_facts) = (&candidate.facts[index], &baseline.facts[other]);
    let inputs = |facts: &assay_store::RowFacts| (facts.tokens_digest.clone(), facts.prefix);
    if inputs(facts) == inputs(other_facts) {
        return Ok(matched(Unit::Token));
    }
    let taken = requested(candidate, &row.name).zip(requested(baseline, &before.name));
    if let Some((option, now, before)) =
        taken.and_then(|(now, before)| options::difference(now, before))
    {
        return Err(format!(
            "it was taken in another way: {option} is {now}, in the baseline {before}; use the \
             same in both"
        ));
    }
    if !facts.text_measures || !other_facts.text_measures {
        return Err(
            "its tokens differ, as those of two tokenizers or chat templates do; only datasets \
             of which every token counts under `rolling` are compared by byte"
                .to_owned(),
        );
    }
    Ok(matched(Unit::Byte))
}

/// The index of the baseline's row under `method` that is of the same data as row `index` of the
/// candidate; both have numbers.
fn same_data(
    baseline: &Side,
    candidate: &Side,
    index: usize,
    method: &Method,
) -> Result<usize, String> {
    let row = &candidate.result.datasets[index];
    require_numbers(candidate, row, "the candidate")?;
    let other = same_name_or_bytes(row, &baseline.result, method)?;
    require_numbers(baseline, &baseline.result.datasets[other], "the baseline")?;
    Ok(other)
}

fn require_numbers(side: &Side, row: &DatasetResult, which: &str) -> Result<(), String> {
    if row.nll.is_some() {
        return Ok(());
    }
    let why = side.job.why_unsuccessful(which).unwrap_or_default();
    Err(format!("{which} has no numbers of it: {why}"))
}

/// The index of the row of this method and of the same name, else of the only one of the same
/// bytes.
fn same_name_or_bytes(
    row: &DatasetResult,
    before: &JobResult,
    method: &Method,
) -> Result<usize, String> {
    let rows = || {
        let rows = before.datasets.iter().enumerate();
        rows.filter(|(_, other)| other.method == *method)
    };
    if let Some((index, other)) = rows().find(|(_, other)| other.name == row.name) {
        // Without a digest it was never planned, which is the cause to name.
        return if other.digest.is_none() || other.digest == row.digest {
            Ok(index)
        } else {
            Err(format!(
                "it was other data in the baseline: its digest is {}, there {}",
                digest(row),
                digest(other)
            ))
        };
    }
    let equal: Vec<_> = rows()
        .filter(|(_, other)| row.digest.is_some() && other.digest == row.digest)
        .collect();
    match equal.as_slice() {
        [(index, _)] => Ok(*index),
        [] => Err(
            "the baseline has no dataset of this name, and none of the same bytes; name those to \
             compare in `datasets`"
                .to_owned(),
        ),
        several => {
            let names: Vec<_> = several.iter().map(|(_, other)| &other.name).collect();
            Err(format!(
                "the baseline has no dataset of this name, and several of the same bytes \
                 ({names:?}); give it the same name in both"
            ))
        }
    }
}

fn digest(row: &DatasetResult) -> &str {
    row.digest.as_deref().unwrap_or("not known")
}

fn tokenizer(result: &JobResult) -> Option<&str> {
    result.tokenizer.as_ref().map(|facts| &*facts.digest)
}

/// The dataset as the job has it, with its options.
fn requested<'a>(side: &'a Side, name: &str) -> Option<&'a DatasetRef> {
    let mut datasets = side.job.datasets.iter();
    datasets.find(|dataset| dataset.name() == name)
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("a method is plain data")
}
