//! How a job is to be run and judged: what decides no number.

use assay_api::JobRequest;

use crate::comparisons;
use crate::faults::Faults;

/// Seconds of a deadline, up to a year.
const DEADLINES: std::ops::RangeInclusive<u32> = 1..=31_536_000;
const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// Checks the priority, the share to audit, the gate and the deadlines.
pub(super) fn check(request: &JobRequest, faults: &mut Faults) {
    let JobRequest {
        priority,
        audit,
        gate,
        deadlines,
        ..
    } = request;
    faults.require(
        PRIORITIES.contains(priority),
        "priority",
        format!(
            "is {priority}; it takes {} (last) to {} (first), and 0 is the default",
            PRIORITIES.start(),
            PRIORITIES.end()
        ),
    );
    faults.require(
        (0.0..=1.0).contains(audit),
        "audit",
        format!("is {audit}; it takes the share of the job to compute twice, 0 to 1"),
    );
    if let Some(gate) = gate {
        comparisons::check_gate(gate, faults);
    }
    let deadlines = deadlines.unwrap_or_default();
    for (field, seconds) in [
        ("deadlines.queue_seconds", deadlines.queue_seconds),
        ("deadlines.run_seconds", deadlines.run_seconds),
    ] {
        faults.require(
            seconds.is_none_or(|seconds| DEADLINES.contains(&seconds)),
            field,
            format!(
                "is {}; it takes {} to {} seconds, or leave it out",
                seconds.unwrap_or_default(),
                DEADLINES.start(),
                DEADLINES.end()
            ),
        );
    }
}
