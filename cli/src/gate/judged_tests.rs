use serde_json::{Value, json};

use super::*;
use crate::compare::tests::{comparison, judged, row};

pub(in crate::gate) fn given() -> GateRequest {
    GateRequest {
        baseline: JobSelector::Tag("branch:main".to_owned()),
        max_increase: 0.01,
        datasets: Vec::new(),
    }
}

/// As the server answers, with the verdict of the rows.
fn answer(rows: Vec<DatasetComparison>) -> Answer<Comparison> {
    let has = |wanted| rows.iter().any(|row| verdict(row) == wanted);
    let verdict = [Verdict::Fail, Verdict::Inconclusive]
        .into_iter()
        .find(|one| has(*one))
        .unwrap_or(Verdict::Pass);
    let value = Comparison {
        verdict: Some(verdict),
        ..comparison(rows)
    };
    Answer {
        text: output::to_json(&value),
        value,
    }
}

pub(in crate::gate) fn of(rows: Vec<DatasetComparison>) -> Judged {
    Judged::of_comparison(&given(), answer(rows))
}

pub(in crate::gate) fn refused() -> Judged {
    let difference = |field: &str, detail: &str| FieldError {
        field: field.to_owned(),
        detail: detail.to_owned(),
    };
    let differences = vec![
        difference("dtype", "float32, in the baseline bfloat16"),
        difference("datasets.d", "its digest differs"),
    ];
    let reason = "the jobs cannot be compared".to_owned();
    Judged::inconclusive(JobId::from_u128(2), &given(), reason, differences)
}

fn passed() -> DatasetComparison {
    judged(Verdict::Pass, "at most 0.0050", row("b", 2.5, 2.501))
}

fn failed() -> DatasetComparison {
    judged(Verdict::Fail, "at least 0.1210", row("a.jsonl", 2.5, 2.625))
}

fn open() -> DatasetComparison {
    judged(Verdict::Inconclusive, "few documents", row("c", 2.5, 2.5))
}

#[test]
fn each_row_has_a_line_and_the_last_is_the_verdict() {
    let mut of = of(vec![failed(), passed(), open()]);
    of.comparison.as_mut().unwrap().warnings = vec!["kinds differ".to_owned()];
    assert_eq!(
        of.render(None),
        "FAIL          a.jsonl: +0.125000 ± 0.004000 nats per token, limit 0.010000: at least 0.1210\n\
         PASS          b: +0.001000 ± 0.004000 nats per token, limit 0.010000: at most 0.0050\n\
         INCONCLUSIVE  c: 0.000000 ± 0.004000 nats per token, limit 0.010000: few documents\n\
         warning: kinds differ\n\
         FAIL: 1 failed, 1 inconclusive, 1 passed"
    );
    let narrow = of.render(Some(40));
    assert!(
        narrow.lines().all(|line| output::columns(line) <= 40),
        "{narrow}"
    );
}

#[test]
fn the_exit_code_is_the_verdict() {
    for (rows, code) in [
        (vec![passed()], 0),
        (vec![passed(), failed(), open()], 1),
        (vec![passed(), open()], 2),
    ] {
        assert_eq!(of(rows).exit_code(), code);
    }
    assert_eq!(refused().exit_code(), 2);
}

#[test]
fn what_is_missing_is_said() {
    let mut bare = open();
    bare.difference.confidence_95 = None;
    bare.reason = None;
    assert_eq!(
        increase(&bare),
        "0.000000 nats per token, without an interval, limit 0.010000"
    );
    bare.difference.difference = None;
    assert_eq!(increase(&bare), "no counted token, limit 0.010000");
    bare.verdict = None;
    assert_eq!(verdict(&bare), Verdict::Inconclusive);
}

#[test]
fn a_refusal_has_a_line_for_each_difference() {
    assert_eq!(
        refused().render(None),
        "INCONCLUSIVE  dtype: float32, in the baseline bfloat16\n\
         INCONCLUSIVE  datasets.d: its digest differs\n\
         INCONCLUSIVE: the jobs cannot be compared"
    );
}

#[test]
fn json_is_that_of_a_stored_gate() {
    let of = of(vec![passed()]);
    let result: GateResult = serde_json::from_str(&of.json).unwrap();
    assert_eq!(result.verdict, Some(Verdict::Pass));
    assert_eq!(result.job_id, JobId::from_u128(2));
    assert_eq!(result.gate.baseline, JobId::from_u128(1), "the tag's");
    assert_eq!(result.reason, "b (rolling): at most 0.0050");
    // Digit by digit: 2.501 - 2.5 is not what a parser without care makes of its text.
    let sent = output::to_json(of.comparison.as_ref().unwrap());
    assert!(of.json.ends_with(&format!("{sent}}}")), "{}", of.json);

    let refused: Value = serde_json::from_str(&refused().json).unwrap();
    assert_eq!(refused["verdict"], "inconclusive");
    assert_eq!(refused["gate"]["baseline"], json!({"tag": "branch:main"}));
    assert_eq!(refused["errors"][0]["field"], "dtype");
    assert_eq!(refused["comparison"], Value::Null);
}

#[test]
fn a_gate_without_a_verdict_says_why() {
    let result = GateResult {
        job_id: JobId::from_u128(2),
        gate: assay_api::Gate {
            baseline: JobId::from_u128(1),
            max_increase: 0.01,
            datasets: Vec::new(),
        },
        verdict: None,
        reason: "the baseline has not ended".to_owned(),
        comparison: None,
    };
    let answer = |value| Answer {
        text: "as it came".to_owned(),
        value,
    };
    let error = Judged::of_gate(answer(result.clone())).unwrap_err();
    assert_eq!(error, "the baseline has not ended");
    let verdict = Some(Verdict::Inconclusive);
    let of = Judged::of_gate(answer(GateResult { verdict, ..result })).unwrap();
    assert_eq!(of.json, "as it came");
    assert_eq!(of.render(None), "INCONCLUSIVE: the baseline has not ended");
}
