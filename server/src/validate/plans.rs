//! What a plan must be asked for with.

use assay_api::{DatasetFormat, PlanDevice, PlanRequest};
use assay_checkpoint::{ChatTemplate, TextTokenizer};

use super::{Grounds, Model, Resolved, chat_template, check};
use crate::error::ApiError;
use crate::faults::Faults;

/// Devices of a plan, all kinds together.
const MAX_DEVICES: u64 = 4096;
/// Tokens per second of a device. Times stay finite.
const RATES: std::ops::RangeInclusive<f64> = 1e-3..=1e12;

/// What a job is planned with.
pub(crate) struct PlannedJob {
    pub(crate) resolved: Resolved,
    pub(crate) model: Model,
    pub(crate) tokenizer: TextTokenizer,
    /// If a dataset is a chat.
    pub(crate) chat: Option<ChatTemplate>,
}

/// Checks the job as [`super::resolve`] does, and the devices.
///
/// # Errors
/// One problem that names every field at fault.
pub(crate) fn resolve_plan(
    grounds: &Grounds,
    request: &PlanRequest,
) -> Result<PlannedJob, ApiError> {
    let mut faults = Faults::default();
    let mut of_job = Faults::default();
    let found = check(grounds, &request.job, &mut of_job);
    faults.add_below("job", of_job);
    devices(&request.devices, &mut faults);
    faults.into_result()?;

    let (resolved, opened) = found.expect("a checkpoint that does not open is a fault");
    let mut datasets = resolved.datasets.iter();
    let is_chat = datasets.any(|dataset| dataset.format() == DatasetFormat::Chat);
    let mut faults = Faults::default();
    let chat = if is_chat {
        chat_template(&opened.model, "job.datasets", &mut faults)
    } else {
        None
    };
    faults.into_result()?;
    Ok(PlannedJob {
        resolved,
        model: opened.model,
        tokenizer: opened.tokenizer,
        chat,
    })
}

fn devices(devices: &[PlanDevice], faults: &mut Faults) {
    faults.require(
        !devices.is_empty(),
        "devices",
        "is empty; name at least one, such as {\"tokens_per_second\": 1000}",
    );
    let count: u64 = devices.iter().map(|device| u64::from(device.count)).sum();
    faults.require(
        count <= MAX_DEVICES,
        "devices",
        format!("come to {count} in all; a plan takes {MAX_DEVICES}"),
    );
    for (index, device) in devices.iter().enumerate() {
        let at = |field| format!("devices[{index}].{field}");
        let PlanDevice {
            name,
            tokens_per_second,
            count,
        } = device;
        faults.require(
            name.as_ref().is_none_or(|name| name.chars().count() <= 256),
            &at("name"),
            "is longer than 256 characters",
        );
        faults.require(
            RATES.contains(tokens_per_second),
            &at("tokens_per_second"),
            format!(
                "is {tokens_per_second}; it takes what one such device does of this job alone, \
                 {:e} to {:e} tokens a second",
                RATES.start(),
                RATES.end()
            ),
        );
        faults.require(
            *count > 0,
            &at("count"),
            "is 0; it takes at least 1, or leave the device out",
        );
    }
}
