//! Which documents got worse.

use assay_api::{DatasetRef, DatasetResult, DocumentRow, Job, JobId, JobResult};
use serde::Serialize;

use super::{PAGE, mean, options, parsed, path, query};
use crate::client::{Client, ClientError, Retry};
use crate::failure::Failure;
use crate::method::describe;
use crate::numbers::{counted, grouped, signed};
use crate::table::{self, Column};
use crate::{ended, jobs, output, results};

/// What to compare.
pub(super) struct Comparison<'a> {
    pub(super) job: &'a Job,
    pub(super) baseline: JobId,
    pub(super) dataset: String,
    pub(super) method: usize,
    pub(super) worst: u64,
}

/// The comparison, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Report {
    job: JobId,
    baseline: JobId,
    dataset: String,
    /// Its name in the baseline, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_dataset: Option<String>,
    method: assay_api::Method,
    documents: u64,
    worse: u64,
    better: u64,
    equal: u64,
    mean_nll: Option<f64>,
    baseline_mean_nll: Option<f64>,
    warnings: Vec<String>,
    /// Those that got worse, the most first.
    items: Vec<Compared>,
}

/// A document in both jobs.
#[derive(Debug, Serialize)]
struct Compared {
    index: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    scored_tokens: u64,
    baseline_mean_nll: f64,
    mean_nll: f64,
    difference: f64,
}

const COLUMNS: [Column; 6] = [
    Column::number("document", 0),
    Column::name("group", 1),
    Column::number("scored tokens", 2),
    Column::number("mean nll before", 3),
    Column::number("mean nll now", 3),
    Column::number("difference", 0),
];

impl Comparison<'_> {
    pub(super) async fn run(&self, client: &Client, json: bool) -> Result<(), Failure> {
        let now = results::get(client, self.job.id, Retry::Always)
            .await?
            .value;
        let baseline_job = jobs::get(client, self.baseline, Retry::Always).await?.value;
        let before = results::get(client, self.baseline, Retry::Always)
            .await?
            .value;
        let method = now.method.as_slice().get(self.method).ok_or_else(|| {
            Failure::Usage(format!(
                "--method {} is none of the job, which has {} (counted from 0)",
                self.method,
                now.method.as_slice().len()
            ))
        })?;
        let other = before.method.as_slice().iter().position(|m| m == method);
        let other = other.ok_or_else(|| {
            Failure::Failed(format!(
                "the baseline has no such method ({}), so its numbers mean something else",
                describe(method)
            ))
        })?;
        let row = named(&now, self.method, &self.dataset)
            .ok_or_else(|| Failure::Failed(format!("the job has no dataset {:?}", self.dataset)))?;
        has_ended(row, self.job, "the job").map_err(Failure::Failed)?;
        let baseline = counterpart(row, &before, other, &baseline_job).map_err(Failure::Failed)?;
        has_ended(baseline, &baseline_job, "the baseline").map_err(Failure::Failed)?;
        let mut warnings = comparable(row, baseline, &now, &before).map_err(Failure::Failed)?;
        same_options(
            requested(self.job, &row.name),
            requested(&baseline_job, &baseline.name),
        )
        .map_err(Failure::Failed)?;
        if let Some(why) = ended::why(&baseline_job, "the baseline") {
            warnings.push(format!("{why}; it had ended on this dataset before"));
        }

        let rows = documents(client, self.job.id, &row.name, self.method).await?;
        let baselines = documents(client, self.baseline, &baseline.name, other).await?;
        let mut report = Report {
            job: self.job.id,
            baseline: self.baseline,
            dataset: self.dataset.clone(),
            baseline_dataset: Some(baseline.name.clone()).filter(|name| *name != row.name),
            method: method.clone(),
            documents: rows.len() as u64,
            worse: 0,
            better: 0,
            equal: 0,
            mean_nll: mean_of(row),
            baseline_mean_nll: mean_of(baseline),
            warnings,
            items: Vec::new(),
        };
        compare(&mut report, &rows, &baselines).map_err(Failure::Failed)?;
        report
            .items
            .truncate(usize::try_from(self.worst).unwrap_or(usize::MAX));
        if json {
            output::json(&report);
        } else {
            output::line(render(&report, output::width()));
        }
        Ok(())
    }
}

async fn documents(
    client: &Client,
    job: JobId,
    dataset: &str,
    method: usize,
) -> Result<Vec<DocumentRow>, ClientError> {
    let pairs = query(dataset, method);
    let page = client.rows(&path(job), &pairs, None, PAGE).await?;
    parsed(&page.items)
}

/// The rows of the datasets under a method.
fn rows_of(result: &JobResult, method: usize) -> impl Iterator<Item = &DatasetResult> {
    let method = &result.method.as_slice()[method];
    let rows = result.datasets.iter();
    rows.filter(move |row| row.method == *method)
}

fn named<'a>(result: &'a JobResult, method: usize, name: &str) -> Option<&'a DatasetResult> {
    rows_of(result, method).find(|row| row.name == name)
}

/// The row of the baseline to hold against `row`: that of the same name, else the only one of
/// the same digest.
fn counterpart<'a>(
    row: &DatasetResult,
    before: &'a JobResult,
    method: usize,
    job: &Job,
) -> Result<&'a DatasetResult, String> {
    if let Some(found) = named(before, method, &row.name) {
        return Ok(found);
    }
    let equal = rows_of(before, method).filter(|other| other.digest == row.digest);
    match equal.collect::<Vec<_>>().as_slice() {
        [one] => Ok(one),
        [] => Err(ended::why(job, "the baseline").unwrap_or_else(|| {
            format!(
                "the baseline has no dataset {:?}, and none of the same bytes",
                row.name
            )
        })),
        several => {
            let names: Vec<_> = several.iter().map(|other| other.name.as_str()).collect();
            Err(format!(
                "the baseline has no dataset {:?}, and several of the same bytes ({}); give it \
                 the same name in both",
                row.name,
                names.join(", ")
            ))
        }
    }
}

fn has_ended(row: &DatasetResult, job: &Job, which: &str) -> Result<(), String> {
    if row.nll.is_some() {
        return Ok(());
    }
    Err(ended::why(job, which)
        .unwrap_or_else(|| format!("{which} has not ended on {:?}; wait until it has", row.name)))
}

/// The dataset as the job has it, with its options.
fn requested<'a>(job: &'a Job, name: &str) -> Option<&'a DatasetRef> {
    job.datasets.iter().find(|dataset| dataset.name() == name)
}

/// Refuses other documents of the same bytes.
fn same_options(now: Option<&DatasetRef>, before: Option<&DatasetRef>) -> Result<(), String> {
    let (Some(now), Some(before)) = (now, before) else {
        return Err("the job does not say how its dataset was taken".to_owned());
    };
    let Some((option, now, before)) = options::difference(now, before) else {
        return Ok(());
    };
    Err(format!(
        "the dataset was taken in another way: {option} is {now}, in the baseline {before}; score \
         both with the same options"
    ))
}

fn mean_of(row: &DatasetResult) -> Option<f64> {
    let nll = row.nll?;
    (row.scored_tokens > 0).then(|| nll / row.scored_tokens as f64)
}

/// Refuses rows whose numbers are about something else; says what else differs.
fn comparable(
    row: &DatasetResult,
    baseline: &DatasetResult,
    now: &JobResult,
    before: &JobResult,
) -> Result<Vec<String>, String> {
    if row.digest != baseline.digest {
        return Err(
            "the dataset was another one in the baseline (its digest differs); score both on the \
             same"
                .to_owned(),
        );
    }
    let mut warnings = Vec::new();
    if now.numerics_version != before.numerics_version {
        warnings.push(format!(
            "numerics_version is {}, in the baseline {}: last digits may differ for that alone",
            now.numerics_version, before.numerics_version
        ));
    }
    if now.dtype != before.dtype {
        warnings.push(format!(
            "computed in {}, the baseline in {}",
            now.dtype.as_str(),
            before.dtype.as_str()
        ));
    }
    if now.precision.is_some() || before.precision.is_some() {
        warnings.push(
            "computed with adaptive numerics: see `precision` in the results for what that changes"
                .to_owned(),
        );
    }
    let digest = |result: &JobResult| result.tokenizer.as_ref().map(|facts| facts.digest.clone());
    if digest(now) != digest(before) {
        warnings.push("the tokenizers differ, though they count the same tokens here".to_owned());
    }
    Ok(warnings)
}

/// Fills in the documents. The signs come from the exact sums.
fn compare(
    report: &mut Report,
    rows: &[DocumentRow],
    baselines: &[DocumentRow],
) -> Result<(), String> {
    if rows.len() != baselines.len() {
        return Err(format!(
            "the baseline has {} documents and the job {}; score both on the same",
            grouped(baselines.len() as u64),
            grouped(rows.len() as u64)
        ));
    }
    for (row, baseline) in rows.iter().zip(baselines) {
        let counts = |row: &DocumentRow| (row.index, row.bytes, row.scored_tokens);
        if counts(row) != counts(baseline) {
            return Err(format!(
                "document {} has {} scored tokens, in the baseline {}; tokenizers or options \
                 differ, so the numbers mean something else",
                row.index,
                grouped(row.scored_tokens),
                grouped(baseline.scored_tokens)
            ));
        }
        let (Some(mean), Some(before)) = (mean(row), mean(baseline)) else {
            continue;
        };
        let exact = |row: &DocumentRow| row.nll_exact.parse::<i128>().unwrap_or_default();
        match exact(row).cmp(&exact(baseline)) {
            std::cmp::Ordering::Less => report.better += 1,
            std::cmp::Ordering::Equal => report.equal += 1,
            std::cmp::Ordering::Greater => {
                report.worse += 1;
                report.items.push(Compared {
                    index: row.index,
                    group: row.group.clone(),
                    scored_tokens: row.scored_tokens,
                    baseline_mean_nll: before,
                    mean_nll: mean,
                    difference: mean - before,
                });
            }
        }
    }
    report.items.sort_by(|a, b| {
        let order = b.difference.total_cmp(&a.difference);
        order.then(a.index.cmp(&b.index))
    });
    Ok(())
}

fn render(report: &Report, width: Option<usize>) -> String {
    let mut lines = Vec::new();
    if !report.items.is_empty() {
        let rows: Vec<_> = report.items.iter().map(cells).collect();
        lines.push(table::render(&COLUMNS, &rows, width));
    }
    let counts = format!(
        "of {} {} got worse, {} better, {} stayed equal",
        counted(report.documents, "document"),
        grouped(report.worse),
        grouped(report.better),
        grouped(report.equal)
    );
    lines.push(output::labelled("", &counts, width));
    if let (Some(now), Some(before)) = (report.mean_nll, report.baseline_mean_nll) {
        let text = format!(
            "mean NLL of the dataset: {before:.4} before, {now:.4} now ({} nats per token)",
            signed(now - before)
        );
        lines.push(output::labelled("", &text, width));
    }
    if let Some(name) = &report.baseline_dataset {
        let text = format!("in the baseline the dataset is {name:?}");
        lines.push(output::labelled("", &text, width));
    }
    for warning in &report.warnings {
        lines.push(output::labelled("warning: ", warning, width));
    }
    lines.join("\n")
}

fn cells(document: &Compared) -> Vec<String> {
    vec![
        grouped(document.index),
        document.group.clone().unwrap_or_default(),
        grouped(document.scored_tokens),
        format!("{:.4}", document.baseline_mean_nll),
        format!("{:.4}", document.mean_nll),
        signed(document.difference),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(index: u64, scored_tokens: u64, nll: i64) -> DocumentRow {
        DocumentRow {
            index,
            tokens: scored_tokens,
            scored_tokens,
            bytes: 4 * scored_tokens,
            words: 1,
            nll: nll as f64,
            nll_exact: (nll << 32).to_string(),
            group: None,
        }
    }

    fn report() -> Report {
        Report {
            job: JobId::nil(),
            baseline: JobId::nil(),
            dataset: "d".to_owned(),
            baseline_dataset: None,
            method: assay_api::Method::rolling(8),
            documents: 4,
            worse: 0,
            better: 0,
            equal: 0,
            mean_nll: Some(1.5),
            baseline_mean_nll: Some(1.25),
            warnings: vec!["computed in float32, the baseline in bfloat16".to_owned()],
            items: Vec::new(),
        }
    }

    #[test]
    fn those_that_got_worse_come_worst_first() {
        let now = [(10, 20), (10, 30), (10, 5), (0, 0)];
        let before = [(10, 10), (10, 10), (10, 10), (0, 0)];
        let rows = |counts: [(u64, i64); 4]| -> Vec<_> {
            (0..)
                .zip(counts)
                .map(|(index, (tokens, nll))| document(index, tokens, nll))
                .collect()
        };
        let mut report = report();
        compare(&mut report, &rows(now), &rows(before)).unwrap();
        assert_eq!((report.worse, report.better, report.equal), (2, 1, 0));
        let order: Vec<_> = report.items.iter().map(|item| item.index).collect();
        assert_eq!(order, [1, 0]);
        let text = render(&report, Some(60));
        assert!(text.contains("+2.0000"), "{text}");
        assert!(text.contains("2 got worse"), "{text}");
        assert!(text.contains("(+0.2500"), "{text}");
        assert!(
            text.lines().all(|line| output::columns(line) <= 60),
            "{text}"
        );
    }

    #[test]
    fn other_counts_are_refused() {
        let error = compare(&mut report(), &[document(0, 9, 1)], &[document(0, 8, 1)]);
        assert!(error.unwrap_err().contains("document 0 has 9"));
        let error = compare(&mut report(), &[document(0, 9, 1)], &[]);
        assert!(error.unwrap_err().contains("0 documents and the job 1"));
    }
}
