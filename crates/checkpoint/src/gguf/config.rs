//! The architecture from the metadata of a GGUF file.

use super::ROPE_DIVISORS;
use super::keys::Keys;
use crate::config::{MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, check_heads};
use crate::family::Family;
use crate::tensor::{Format, StoredTensor, Tensors, WeightDtype};
use crate::{Architecture, CheckpointError, Rope, RopeScaling, Slot};

/// The architecture; what the metadata leaves open follows from the tensors. `divisors` is the
/// tensor that scales the rotary frequencies, if there is one.
pub(super) fn architecture(
    keys: &Keys,
    tensors: &Tensors,
    divisors: Option<&StoredTensor>,
) -> Result<Architecture, CheckpointError> {
    let family = family(keys)?;
    let spec = family.spec();
    let key = |name: &str| format!("{}.{name}", spec.gguf_architecture);
    refuse_unsupported(keys, &key)?;
    let hidden_size = keys.required_size(&key("embedding_length"), MAX_WIDTH)?;
    let heads = keys.required_size(&key("attention.head_count"), MAX_WIDTH)?;
    let head_dim = keys
        .size(&key("attention.key_length"), MAX_WIDTH)?
        .unwrap_or(hidden_size / heads);
    for name in ["rope.dimension_count", "attention.value_length"] {
        let width = keys.size(&key(name), MAX_WIDTH)?.unwrap_or(head_dim);
        if width != head_dim {
            let remedy = format!("it must be the width of a head, {head_dim}");
            return Err(CheckpointError::unsupported(
                keys.file,
                &key(name),
                width.to_string(),
                remedy,
            ));
        }
    }
    let embedding = spec.gguf.name(Slot::Embedding);
    let architecture = Architecture {
        family,
        hidden_size,
        intermediate_size: keys.required_size(&key("feed_forward_length"), MAX_WIDTH)?,
        layers: keys.required_size(&key("block_count"), MAX_LAYERS)?,
        heads,
        kv_heads: keys
            .size(&key("attention.head_count_kv"), MAX_WIDTH)?
            .unwrap_or(heads),
        head_dim,
        // The embedding has the last word: the key is absent from older files.
        vocab_size: tensors
            .by_name
            .get(&embedding)
            .and_then(|tensor| tensor.shape.first().copied())
            .unwrap_or_default(),
        max_positions: keys.required_size(&key("context_length"), MAX_POSITIONS)?,
        norm_eps: keys.required_positive(&key("attention.layer_norm_rms_epsilon"))?,
        rope: Rope {
            theta: keys
                .positive(&key("rope.freq_base"))?
                .unwrap_or(spec.defaults.rope_theta),
            scaling: match divisors {
                None => RopeScaling::None,
                Some(tensor) => RopeScaling::Divisors(rope_divisors(keys, tensor, head_dim)?),
            },
        },
        tied_head: !tensors.by_name.contains_key(&spec.gguf.name(Slot::Head)),
    };
    let wrong =
        |field: &str, detail| CheckpointError::configuration(keys.file, &key(field), detail);
    check_heads(
        &architecture,
        wrong,
        ("attention.key_length", "attention.head_count_kv"),
    )?;
    Ok(architecture)
}

fn family(keys: &Keys) -> Result<Family, CheckpointError> {
    let wanted = keys.text("general.architecture")?.unwrap_or("(none named)");
    let name: fn(&Family) -> &str = |family| family.spec().gguf_architecture;
    let found = Family::ALL.iter().find(|family| name(family) == wanted);
    found
        .copied()
        .ok_or_else(|| CheckpointError::UnknownArchitecture {
            file: keys.file.to_owned(),
            architecture: wanted.to_owned(),
            supported: Family::ALL.iter().map(name).collect::<Vec<_>>().join(", "),
        })
}

/// Keys that change the computation, with the values under which they do not.
fn refuse_unsupported(keys: &Keys, key: &impl Fn(&str) -> String) -> Result<(), CheckpointError> {
    let unsupported = |key: &str, value: String, remedy: &str| {
        Err(CheckpointError::unsupported(keys.file, key, value, remedy))
    };
    let scaling = key("rope.scaling.type");
    if let Some(kind) = keys.text(&scaling)?.filter(|kind| *kind != "none") {
        return unsupported(
            &scaling,
            kind.to_owned(),
            "only files without it, or with `none`, are",
        );
    }
    let linear = key("rope.scale_linear");
    if let Some(factor) = keys
        .positive(&linear)?
        .filter(|factor| factor.to_bits() != 1_f64.to_bits())
    {
        return unsupported(&linear, factor.to_string(), "only 1 is");
    }
    for (name, neutral) in [("expert_count", 0), ("attention.sliding_window", 0)] {
        let key = key(name);
        if let Some(number) = keys.integer(&key)?.filter(|number| *number != neutral) {
            return unsupported(&key, number.to_string(), "only files without it are");
        }
    }
    if let Some(files) = keys.integer("split.count")?.filter(|files| *files > 1) {
        return unsupported(
            "split.count",
            files.to_string(),
            "merge the files with llama-gguf-split --merge",
        );
    }
    Ok(())
}

fn rope_divisors(
    keys: &Keys,
    tensor: &StoredTensor,
    head_dim: usize,
) -> Result<Vec<f32>, CheckpointError> {
    let expected = vec![head_dim / 2];
    if tensor.format != Format::Plain(WeightDtype::F32) {
        return Err(CheckpointError::UnsupportedDtype {
            file: keys.file.to_owned(),
            tensor: ROPE_DIVISORS.to_owned(),
            dtype: format!("{:?}", tensor.format),
            supported: "F32",
        });
    }
    if tensor.shape != expected {
        return Err(CheckpointError::WrongShape {
            file: keys.file.to_owned(),
            tensor: ROPE_DIVISORS.to_owned(),
            stored: tensor.shape.clone(),
            expected,
        });
    }
    let (values, _) = keys.bytes[tensor.bytes.clone()].as_chunks::<4>();
    let divisors: Vec<f32> = values
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    if divisors
        .iter()
        .all(|divisor| divisor.is_finite() && *divisor > 0.0)
    {
        return Ok(divisors);
    }
    let detail = format!("tensor `{ROPE_DIVISORS}` has a divisor that is not a positive number");
    Err(CheckpointError::damaged(keys.file, detail))
}
