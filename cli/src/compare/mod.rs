//! `assay compare`.

mod table;

use std::process::ExitCode;

use assay_api::{Comparison, ComparisonRequest, DatasetComparison, JobId, JobSelector, Verdict};
use reqwest::Method;

use crate::client::{Answer, Client, ClientError, Retry, ServerArgs, job_id};
use crate::failure::{EXIT_CODES, Outcome};
use crate::selector::{increase, selector};
use crate::{method, output};

/// How many documents are listed if nobody says so, as the server has it.
pub(crate) const DOCUMENTS: u32 = 10;

/// Hold a job against another one: how much better or worse, and whether that is noise.
///
/// Both jobs must have ended and have scored the same text in the same way; else the server says
/// what differs. The difference is paired, document by document, so its interval is far narrower
/// than those of the two means. Groups stand below their dataset. With --max-increase a verdict is
/// shown, which changes no exit code: `assay gate` is for pipelines.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Compare {
    /// Id of the job that is judged
    #[arg(value_name = "CANDIDATE", value_parser = job_id)]
    candidate: JobId,
    /// Job to compare with: its id, or KEY:VALUE for the newest older one with this tag that has
    /// succeeded
    #[arg(long, value_name = "JOB|TAG", value_parser = selector)]
    baseline: JobSelector,
    /// Name of a dataset of the candidate; may be given again [default: all]
    #[arg(long = "dataset", value_name = "NAME")]
    datasets: Vec<String>,
    /// How many documents to list of those that got worst, and as many of those that got best
    #[arg(long, value_name = "N", default_value_t = DOCUMENTS,
        value_parser = clap::value_parser!(u32).range(..=1000))]
    documents: u32,
    /// Also say whether the mean NLL rose by no more than X nats per token; 0.01 is 1 % of
    /// perplexity
    #[arg(long, value_name = "X", value_parser = increase, allow_negative_numbers = true)]
    max_increase: Option<f64>,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) async fn run(compare: &Compare) -> Outcome {
    let client = compare.server.client()?;
    let request = ComparisonRequest {
        baseline: compare.baseline.clone(),
        candidate: compare.candidate,
        datasets: compare.datasets.clone(),
        max_increase: compare.max_increase,
        documents: compare.documents,
    };
    let answer = post(&client, &request, Retry::Interrupted).await?;
    if compare.json {
        output::line(answer.text);
    } else {
        output::line(table::render(&answer.value, output::width()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for a comparison. It is computed and not stored, so it may be asked for again.
pub(crate) async fn post(
    client: &Client,
    request: &ComparisonRequest,
    retry: Retry,
) -> Result<Answer<Comparison>, ClientError> {
    client
        .patient()
        .call(Method::POST, "/comparisons", retry, |http| {
            http.json(request)
        })
        .await
}

/// What the rows are called, in their order: by the dataset, and the method if there are several.
pub(crate) fn names(rows: &[DatasetComparison]) -> Vec<String> {
    let several = has_several_methods(rows);
    let names = rows.iter().map(|row| {
        if several {
            format!("{} ({})", row.name, method::label(&row.method))
        } else {
            row.name.clone()
        }
    });
    names.collect()
}

fn has_several_methods(rows: &[DatasetComparison]) -> bool {
    rows.windows(2).any(|pair| pair[0].method != pair[1].method)
}

/// The verdict as people read it.
pub(crate) const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::Inconclusive => "INCONCLUSIVE",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use assay_api::{Convention, GroupComparison, Method, PairedDifference, Unit};

    use super::*;

    /// A difference of means over 40 documents; its other numbers are made up.
    pub(crate) fn difference(before: f64, now: f64) -> PairedDifference {
        PairedDifference {
            documents: 40,
            units: 51_234,
            baseline_mean_nll: Some(before),
            candidate_mean_nll: Some(now),
            difference: Some(now - before),
            nll_difference_exact: "1".to_owned(),
            perplexity_ratio: Some((now - before).exp()),
            standard_error: Some(0.002),
            confidence_95: Some(0.004),
            clusters: 40,
            worse: 29,
            better: 10,
            equal: 1,
            sign_test_p: 0.003_2,
        }
    }

    /// A row under `rolling` in tokens, without a verdict.
    pub(crate) fn row(name: &str, before: f64, now: f64) -> DatasetComparison {
        DatasetComparison {
            name: name.to_owned(),
            baseline_name: None,
            method: Method::rolling(2048),
            unit: Unit::Token,
            difference: difference(before, now),
            max_increase: None,
            verdict: None,
            reason: None,
            groups: Vec::<GroupComparison>::new(),
            worst: Vec::new(),
            best: Vec::new(),
        }
    }

    /// The row with a verdict.
    pub(crate) fn judged(
        verdict: Verdict,
        reason: &str,
        row: DatasetComparison,
    ) -> DatasetComparison {
        DatasetComparison {
            max_increase: Some(0.01),
            verdict: Some(verdict),
            reason: Some(reason.to_owned()),
            ..row
        }
    }

    /// The row under `blocks`.
    pub(crate) fn by_blocks(row: DatasetComparison) -> DatasetComparison {
        let method = Method {
            convention: Convention::Blocks,
            ..Method::rolling(1024)
        };
        DatasetComparison { method, ..row }
    }

    /// The rows, candidate …2 against baseline …1.
    pub(crate) fn comparison(rows: Vec<DatasetComparison>) -> Comparison {
        Comparison {
            baseline: JobId::from_u128(1),
            candidate: JobId::from_u128(2),
            datasets: rows,
            verdict: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn rows_are_told_apart_by_the_method_where_there_are_several() {
        let one = row("d", 1.0, 2.0);
        assert_eq!(names(&[one.clone(), row("e", 1.0, 2.0)]), ["d", "e"]);
        assert_eq!(
            names(&[one.clone(), by_blocks(one)]),
            ["d (rolling 2048)", "d (blocks 1024)"]
        );
    }
}
