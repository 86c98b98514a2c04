//! How a job is to be run and judged: what decides no number.

use assay_api::JobRequest;

use crate::comparisons;
use crate::faults::Faults;

const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// Checks the priority, the share to audit and the gate.
pub(super) fn check(request: &JobRequest, faults: &mut Faults) {
    let JobRequest {
        priority,
        audit,
        gate,
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
}
