//! What a gate came to.

use assay_api::{
    Comparison, DatasetComparison, FieldError, GateRequest, GateResult, JobId, JobSelector, Verdict,
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::client::Answer;
use crate::compare::{names, word};
use crate::failure::exit;
use crate::numbers::{signed, small};
use crate::output::{self, labelled};

/// What a gate came to.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// Why, in a sentence.
    pub(super) reason: String,
    /// What kept the jobs from being compared, where the server said so.
    pub(super) differences: Vec<FieldError>,
    /// What the verdict rests on, if the jobs were compared.
    pub(super) comparison: Option<Comparison>,
    /// What `--json` prints.
    pub(super) json: String,
}

/// A [`GateResult`] whose baseline may be a tag, and whose comparison is the server's text: a
/// number that is parsed and written again may differ in its last digit.
#[derive(Serialize)]
struct Printed<'a> {
    job_id: JobId,
    gate: &'a GateRequest,
    verdict: Verdict,
    reason: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    comparison: Option<&'a RawValue>,
}

impl Judged {
    /// The verdict of a comparison that was asked for with a limit.
    pub(super) fn of_comparison(given: &GateRequest, answer: Answer<Comparison>) -> Self {
        let comparison = answer.value;
        let (verdict, reason) = match comparison.verdict {
            Some(verdict) => (verdict, decisive(&comparison.datasets, verdict)),
            None => (
                Verdict::Inconclusive,
                "the server gave no verdict".to_owned(),
            ),
        };
        let gate = GateRequest {
            baseline: JobSelector::Id(comparison.baseline),
            ..given.clone()
        };
        let raw = RawValue::from_string(answer.text).ok();
        let printed = Printed {
            job_id: comparison.candidate,
            gate: &gate,
            verdict,
            reason: &reason,
            errors: &[],
            comparison: raw.as_deref(),
        };
        Self {
            json: output::to_json(&printed),
            verdict,
            reason,
            differences: Vec::new(),
            comparison: Some(comparison),
        }
    }

    /// No verdict, for want of a comparison.
    pub(super) fn inconclusive(
        job_id: JobId,
        given: &GateRequest,
        reason: String,
        differences: Vec<FieldError>,
    ) -> Self {
        let verdict = Verdict::Inconclusive;
        let printed = Printed {
            job_id,
            gate: given,
            verdict,
            reason: &reason,
            errors: &differences,
            comparison: None,
        };
        Self {
            json: output::to_json(&printed),
            verdict,
            reason,
            differences,
            comparison: None,
        }
    }

    /// The verdict of the gate that a job was posted with.
    ///
    /// # Errors
    /// There is none, as a job has not ended.
    pub(super) fn of_gate(answer: Answer<GateResult>) -> Result<Self, String> {
        let result = answer.value;
        let Some(verdict) = result.verdict else {
            return Err(result.reason);
        };
        Ok(Self {
            verdict,
            reason: result.reason,
            differences: Vec::new(),
            comparison: result.comparison,
            json: answer.text,
        })
    }

    /// The rows with their names.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&DatasetComparison, String)> {
        let comparison = self.comparison.as_ref();
        let rows = comparison.map_or(&[][..], |comparison| comparison.datasets.as_slice());
        rows.iter().zip(names(rows))
    }

    /// A line for each row, or for what kept the jobs from being compared, the warnings, and the
    /// verdict.
    pub(super) fn render(&self, width: Option<usize>) -> String {
        let line = |verdict, text: &str| labelled(&format!("{:14}", word(verdict)), text, width);
        let rows = self.rows().map(|(row, name)| {
            let text = format!("{name}: {}", increase(row));
            line(verdict(row), &text)
        });
        let mut lines: Vec<_> = rows.collect();
        for difference in &self.differences {
            let text = format!("{}: {}", difference.field, difference.detail);
            lines.push(line(Verdict::Inconclusive, &text));
        }
        if let Some(comparison) = &self.comparison {
            for warning in &comparison.warnings {
                lines.push(labelled("warning: ", warning, width));
            }
        }
        let word = word(self.verdict);
        let last = match &self.comparison {
            // The rows have said why.
            Some(comparison) => format!("{word}: {}", counts(&comparison.datasets)),
            None => format!("{word}: {}", self.reason),
        };
        lines.push(labelled("", &last, width));
        lines.join("\n")
    }

    /// The code that the program ends with.
    pub(super) const fn exit_code(&self) -> u8 {
        match self.verdict {
            Verdict::Pass => 0,
            Verdict::Fail => exit::FAILED,
            Verdict::Inconclusive => exit::INCONCLUSIVE,
        }
    }
}

/// A row without a verdict decides nothing.
pub(super) fn verdict(row: &DatasetComparison) -> Verdict {
    row.verdict.unwrap_or(Verdict::Inconclusive)
}

/// The increase with its interval, the limit, and why that is the verdict.
pub(super) fn increase(row: &DatasetComparison) -> String {
    let unit = row.unit.as_str();
    let mut text = match (row.difference.difference, row.difference.confidence_95) {
        (Some(difference), Some(half)) => {
            format!("{} ± {} nats per {unit}", signed(difference), small(half))
        }
        (Some(difference), None) => {
            format!(
                "{} nats per {unit}, without an interval",
                signed(difference)
            )
        }
        (None, _) => format!("no counted {unit}"),
    };
    if let Some(limit) = row.max_increase {
        text = format!("{text}, limit {}", small(limit));
    }
    match &row.reason {
        Some(reason) => format!("{text}: {reason}"),
        None => text,
    }
}

/// Why the rows that decided have their verdict, as `GET /jobs/{id}/gate` says it.
fn decisive(rows: &[DatasetComparison], decision: Verdict) -> String {
    let rows = rows.iter().filter(|row| verdict(row) == decision);
    let reasons: Vec<_> = rows
        .map(|row| {
            let convention = row.method.convention.as_str();
            let reason = row.reason.as_deref().unwrap_or_default();
            format!("{} ({convention}): {reason}", row.name)
        })
        .collect();
    reasons.join(". ")
}

/// How many rows have which verdict, those that there are.
fn counts(rows: &[DatasetComparison]) -> String {
    let counts = [
        (Verdict::Fail, "failed"),
        (Verdict::Inconclusive, "inconclusive"),
        (Verdict::Pass, "passed"),
    ]
    .map(|(wanted, what)| {
        let count = rows.iter().filter(|row| verdict(row) == wanted).count();
        (count > 0).then(|| format!("{count} {what}"))
    });
    counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "judged_tests.rs"]
pub(super) mod tests;
