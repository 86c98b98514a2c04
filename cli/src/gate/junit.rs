//! A verdict as JUnit XML, for the test reports of CI systems.

use std::io::Write as _;
use std::path::Path;

use assay_api::{DatasetComparison, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite, XmlString};

use super::judged::{Judged, increase, verdict};
use crate::aside::aside;
use crate::failure::Failure;
use crate::output::printable;

/// Whether `file` can be written.
///
/// # Errors
/// It cannot.
pub(super) fn check(file: &Path) -> Result<(), Failure> {
    if file.is_dir() {
        return Err(unwritable(file, &"it is a directory"));
    }
    let probe = aside(file);
    probe.map(drop).map_err(|error| unwritable(file, &error))
}

/// Writes the verdict into `file`, which is whole or as it was.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(judged: &Judged, file: &Path) -> Result<(), Failure> {
    let mut aside = aside(file).map_err(|error| unwritable(file, &error))?;
    let written = report(judged).serialize(&mut aside);
    written.map_err(|error| unwritable(file, &error))?;
    aside.flush().map_err(|error| unwritable(file, &error))?;
    let persisted = aside.persist(file);
    persisted
        .map(drop)
        .map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Undecided(format!("cannot write {}: {error}", file.display()))
}

/// One suite with a case for each row. Where the jobs were not compared, one case says why, so
/// that no system takes an empty report for success.
fn report(judged: &Judged) -> Report {
    let mut suite = TestSuite::new("assay gate");
    if let Some(comparison) = &judged.comparison {
        suite.add_property(("candidate", comparison.candidate.to_string().as_str()));
        suite.add_property(("baseline", comparison.baseline.to_string().as_str()));
    }
    suite.add_test_cases(judged.rows().map(|(row, name)| case(row, &name)));
    if suite.test_cases.is_empty() {
        suite.add_test_case(without_comparison(judged));
    }
    let mut report = Report::new("assay gate");
    report.add_test_suite(suite);
    report
}

fn case(row: &DatasetComparison, name: &str) -> TestCase {
    let status = status(verdict(row), &increase(row));
    let mut case = TestCase::new(valid(name), status);
    case.set_classname(row.method.convention.as_str());
    let of = &row.difference;
    // As they are, with all their digits.
    for (name, number) in [
        ("baseline_mean_nll", of.baseline_mean_nll),
        ("candidate_mean_nll", of.candidate_mean_nll),
        ("difference", of.difference),
        ("confidence_95", of.confidence_95),
        ("max_increase", row.max_increase),
    ] {
        if let Some(number) = number {
            case.add_property((name, number.to_string().as_str()));
        }
    }
    case.add_property(("unit", row.unit.as_str()));
    case
}

fn without_comparison(judged: &Judged) -> TestCase {
    let mut status = status(judged.verdict, &judged.reason);
    let differences = judged.differences.iter();
    let lines: Vec<_> = differences
        .map(|difference| printable(&format!("{}: {}", difference.field, difference.detail)))
        .collect();
    if !lines.is_empty() {
        status.set_description(valid_lines(&lines.join("\n")));
    }
    let mut case = TestCase::new("comparison", status);
    case.set_classname("assay");
    case
}

/// An error is what CI systems count as not passed, and tell apart from a failure. A test that is
/// skipped would pass.
fn status(verdict: Verdict, message: &str) -> TestCaseStatus {
    let kind = match verdict {
        Verdict::Pass => return TestCaseStatus::success(),
        Verdict::Fail => NonSuccessKind::Failure,
        Verdict::Inconclusive => NonSuccessKind::Error,
    };
    let mut status = TestCaseStatus::non_success(kind);
    status
        .set_message(valid(message))
        .set_type(verdict.as_str());
    status
}

/// One line that XML 1.0 can hold. Control characters become escapes, so that names which differ
/// in one stay apart.
fn valid(text: &str) -> XmlString {
    valid_lines(&printable(text))
}

/// U+FFFE and U+FFFF are no characters of XML (section 2.2), and `XmlString` lets them through.
fn valid_lines(text: &str) -> XmlString {
    XmlString::new(text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::compare::tests::{by_blocks, judged, row};
    use crate::gate::judged::tests::{of, refused};

    #[test]
    fn a_verdict_is_a_suite_with_a_case_for_each_row() {
        let reason = "the increase is at least 0.121, more than 0.01";
        let mut open = judged(Verdict::Inconclusive, "few documents", row("c", 2.5, 2.5));
        open.difference.confidence_95 = None;
        let of = of(vec![
            judged(Verdict::Fail, reason, row("a", 2.5, 2.625)),
            by_blocks(judged(Verdict::Pass, "below", row("a", 2.5, 2.5))),
            open,
        ]);
        assert_eq!(
            report(&of).to_string().unwrap(),
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="assay gate" tests="3" skipped="0" failures="1" errors="1">
    <testsuite name="assay gate" tests="3" skipped="0" errors="1" failures="1">
        <properties>
            <property name="candidate" value="00000000-0000-0000-0000-000000000002"/>
            <property name="baseline" value="00000000-0000-0000-0000-000000000001"/>
        </properties>
        <testcase name="a (rolling 2048)" classname="rolling">
            <properties>
                <property name="baseline_mean_nll" value="2.5"/>
                <property name="candidate_mean_nll" value="2.625"/>
                <property name="difference" value="0.125"/>
                <property name="confidence_95" value="0.004"/>
                <property name="max_increase" value="0.01"/>
                <property name="unit" value="token"/>
            </properties>
            <failure message="+0.125000 ± 0.004000 nats per token, limit 0.010000: the increase is at least 0.121, more than 0.01" type="fail"/>
        </testcase>
        <testcase name="a (blocks 1024)" classname="blocks">
            <properties>
                <property name="baseline_mean_nll" value="2.5"/>
                <property name="candidate_mean_nll" value="2.5"/>
                <property name="difference" value="0"/>
                <property name="confidence_95" value="0.004"/>
                <property name="max_increase" value="0.01"/>
                <property name="unit" value="token"/>
            </properties>
        </testcase>
        <testcase name="c (rolling 2048)" classname="rolling">
            <properties>
                <property name="baseline_mean_nll" value="2.5"/>
                <property name="candidate_mean_nll" value="2.5"/>
                <property name="difference" value="0"/>
                <property name="max_increase" value="0.01"/>
                <property name="unit" value="token"/>
            </properties>
            <error message="0.000000 nats per token, without an interval, limit 0.010000: few documents" type="inconclusive"/>
        </testcase>
    </testsuite>
</testsuites>
"#
        );
    }

    #[test]
    fn jobs_that_were_not_compared_are_one_case_that_does_not_pass() {
        assert_eq!(
            report(&refused()).to_string().unwrap(),
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="assay gate" tests="1" skipped="0" failures="0" errors="1">
    <testsuite name="assay gate" tests="1" skipped="0" errors="1" failures="0">
        <testcase name="comparison" classname="assay">
            <error message="the jobs cannot be compared" type="inconclusive">dtype: float32, in the baseline bfloat16
datasets.d: its digest differs</error>
        </testcase>
    </testsuite>
</testsuites>
"#
        );
    }

    #[test]
    fn any_name_is_well_formed_and_read_back() {
        let name = "<a&b>\"c'\u{0}\u{1b}[31m\u{ffff}\n中";
        let of = of(vec![judged(Verdict::Fail, name, row(name, 1.0, 2.0))]);
        let text = report(&of).to_string().unwrap();
        assert!(
            text.contains(r#"name="&lt;a&amp;b&gt;&quot;c&apos;"#),
            "{text}"
        );
        let foreign = |character: char| {
            (character.is_control() && character != '\n') || character == '\u{ffff}'
        };
        assert!(!text.contains(foreign), "{text}");
        let read = Report::deserialize_from_str(&text).unwrap();
        let case = &read.test_suites[0].test_cases[0];
        let shown = "<a&b>\"c'\\u{0}\\u{1b}[31m\u{fffd}\\n中";
        assert_eq!(case.name.as_str(), shown);
        let TestCaseStatus::NonSuccess { message, .. } = &case.status else {
            panic!("{text}");
        };
        assert!(
            message.as_ref().unwrap().as_str().ends_with(shown),
            "{text}"
        );
    }

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gate.xml");
        check(&file).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(&file, "before").unwrap();
        write(&refused(), &file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, report(&refused()).to_string().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        for wrong in [folder.path().to_owned(), file.join("below.xml")] {
            let error = check(&wrong).unwrap_err();
            let code = error.exit_code();
            assert_eq!(code, std::process::ExitCode::from(2), "{error}");
            assert!(error.to_string().contains("cannot write"), "{error}");
        }
    }
}
