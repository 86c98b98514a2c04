//! Rotary position embedding as configurations describe it.

use serde_json::Value;

use super::Fields;
use crate::{CheckpointError, Rope, RopeScaling};

const KINDS: &str = "default, linear, dynamic, llama3, yarn and longrope are";

/// Where a rotary embedding is described, and what holds for what is not.
pub(crate) struct Place<'a> {
    /// The object of the scaling, if there is one.
    pub(crate) scaling: Option<Fields<'a>>,
    /// The configuration around it.
    pub(crate) around: &'a Fields<'a>,
    /// The base, unless the scaling says another.
    pub(crate) theta: f64,
    /// The share of a head that is rotated, unless the scaling says another.
    pub(crate) part: f64,
    /// Whether less than a whole head may be rotated.
    pub(crate) partial: bool,
    /// Width of a head.
    pub(crate) head_dim: usize,
    /// The field in errors about the width.
    pub(crate) head_field: &'a str,
    /// Longest input.
    pub(crate) max_positions: usize,
    /// Where the positions that the model was first trained with are said.
    pub(crate) original: Original,
}

/// Where a family says how many positions it was first trained with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Original {
    /// Beside the scaling or in it; the longest input where it is not said.
    Anywhere,
    /// In the scaling only.
    Within,
    /// Beside the scaling only, and so many where it is not said.
    Beside(usize),
}

/// The rotary embedding at `place`.
pub(crate) fn rope(place: &Place) -> Result<Rope, CheckpointError> {
    let Place {
        scaling,
        around,
        head_dim,
        ..
    } = place;
    let number = |name: &str| match scaling {
        Some(scaling) => scaling.positive(name),
        None => Ok(None),
    };
    let theta = number("rope_theta")?.unwrap_or(place.theta);
    let part = number("partial_rotary_factor")?.unwrap_or(place.part);
    let said = scaling.as_ref().unwrap_or(around);
    if part > 1.0 || (part < 1.0 && !place.partial) {
        let remedy = "only whole heads are";
        return Err(said.unsupported("partial_rotary_factor", part.to_string(), remedy));
    }
    // Truncated as in transformers.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // both are small
    let dims = (*head_dim as f64 * part) as usize;
    if dims == 0 || !dims.is_multiple_of(2) {
        let detail = if part < 1.0 {
            format!("makes {dims} numbers of a head rotate, but they rotate in pairs")
        } else {
            format!("is {head_dim}, but rotary embedding needs heads of an even width")
        };
        let (fields, field) = if part < 1.0 {
            (said, "partial_rotary_factor")
        } else {
            (*around, place.head_field)
        };
        return Err(fields.wrong(field, detail));
    }
    let scaling = match scaling {
        None => RopeScaling::None,
        Some(scaling) => scaled(scaling, place, dims, theta)?,
    };
    Ok(Rope {
        dims,
        theta,
        scaling,
    })
}

fn scaled(
    fields: &Fields,
    place: &Place,
    dims: usize,
    theta: f64,
) -> Result<RopeScaling, CheckpointError> {
    if fields.map.values().any(Value::is_object) {
        let remedy = "only one set of parameters for all layers is";
        let value = "set per kind of layer";
        return Err(place.around.unsupported(&fields.within, value, remedy));
    }
    let kind = match fields.text("rope_type")? {
        None => fields.text("type")?,
        kind => kind,
    };
    let required = |name: &str| {
        let value = fields.positive(name)?;
        value.ok_or_else(|| fields.wrong(name, "is missing"))
    };
    Ok(match kind.unwrap_or("default") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear(required("factor")?),
        // It changes nothing up to the longest input, and windows are no longer.
        "dynamic" => {
            required("factor")?;
            RopeScaling::None
        }
        "llama3" => {
            let (low, high) = (required("low_freq_factor")?, required("high_freq_factor")?);
            if low >= high {
                let detail =
                    format!("is {low}, but it must be below high_freq_factor, which is {high}");
                return Err(fields.wrong("low_freq_factor", detail));
            }
            RopeScaling::Llama3 {
                factor: required("factor")?,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_positions: original(fields, place)? as f64,
            }
        }
        // What Phi 3 first called so is the other one.
        "yarn" if matches!(place.original, Original::Beside(_)) => long_rope(fields, place, dims)?,
        "yarn" => yarn(fields, place, dims, theta)?,
        "longrope" | "su" => long_rope(fields, place, dims)?,
        other => return Err(fields.unsupported("rope_type", other, KINDS)),
    })
}

const ORIGINAL: &str = "original_max_position_embeddings";

/// Positions the model was first trained with.
fn original(fields: &Fields, place: &Place) -> Result<usize, CheckpointError> {
    let said = |fields: &Fields| fields.size(ORIGINAL, super::MAX_POSITIONS);
    let within = || Ok(said(fields)?.unwrap_or(place.max_positions));
    match place.original {
        Original::Within => within(),
        Original::Beside(default) => Ok(said(place.around)?.unwrap_or(default)),
        Original::Anywhere => said(place.around)?.map_or_else(within, Ok),
    }
}

fn factor(fields: &Fields, place: &Place, original: usize) -> Result<f64, CheckpointError> {
    let said = fields.positive("factor")?;
    Ok(said.unwrap_or(place.max_positions as f64 / original as f64))
}

/// `_compute_yarn_parameters` of transformers.
fn yarn(
    fields: &Fields,
    place: &Place,
    dims: usize,
    theta: f64,
) -> Result<RopeScaling, CheckpointError> {
    if theta <= 1.0 {
        return Err(fields.wrong(
            "rope_theta",
            format!("is {theta}, but yarn needs more than 1"),
        ));
    }
    let original = original(fields, place)?;
    let factor = factor(fields, place, original)?;
    let scale = |weight: f64| {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * weight * factor.ln() + 1.0
        }
    };
    // In some configurations 0 stands for what is not said.
    let said = |name: &str| match fields.get(name) {
        Some(value) if value.as_f64() == Some(0.0) => Ok(None),
        _ => fields.positive(name),
    };
    let weights = (said("mscale")?, said("mscale_all_dim")?);
    let magnitude = match (fields.positive("attention_factor")?, weights) {
        (Some(magnitude), _) => magnitude,
        (None, (Some(mscale), Some(all))) => scale(mscale) / scale(all),
        (None, _) => scale(1.0),
    };
    let fast = said("beta_fast")?.unwrap_or(32.0);
    let slow = said("beta_slow")?.unwrap_or(1.0);
    // The number of the frequency that turns this often over the original positions.
    let number = |turns: f64| {
        let radians = turns * std::f64::consts::TAU;
        dims as f64 * (original as f64 / radians).ln() / (2.0 * theta.ln())
    };
    let (mut start, mut end) = (number(fast), number(slow));
    if fields.flag("truncate")?.unwrap_or(true) {
        (start, end) = (start.floor(), end.ceil());
    }
    (start, end) = (start.max(0.0), end.min(dims as f64 - 1.0));
    if start.to_bits() == end.to_bits() {
        end += 0.001;
    }
    Ok(RopeScaling::Yarn {
        factor,
        ramp: (start, end),
        magnitude,
    })
}

/// `_compute_longrope_parameters` of transformers.
fn long_rope(fields: &Fields, place: &Place, dims: usize) -> Result<RopeScaling, CheckpointError> {
    let divisors = |name: &str| {
        #[allow(clippy::cast_possible_truncation)] // to float32 is what is meant
        let numbers = fields.list(name, "positive numbers", |value| {
            let number = value.as_f64()? as f32;
            (number.is_finite() && number > 0.0).then_some(number)
        })?;
        let numbers = numbers.ok_or_else(|| fields.wrong(name, "is missing"))?;
        if numbers.len() == dims / 2 {
            return Ok(numbers);
        }
        let detail = format!(
            "has {} numbers, but {dims} numbers of a head rotate, so it must have {}",
            numbers.len(),
            dims / 2
        );
        Err(fields.wrong(name, detail))
    };
    let original = original(fields, place)?;
    let factor = factor(fields, place, original)?;
    let magnitude = match fields.positive("attention_factor")? {
        Some(magnitude) => magnitude,
        None if factor <= 1.0 => 1.0,
        None => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
    };
    Ok(RopeScaling::LongRope {
        short: divisors("short_factor")?,
        long: divisors("long_factor")?,
        original_max_positions: original,
        magnitude,
    })
}
