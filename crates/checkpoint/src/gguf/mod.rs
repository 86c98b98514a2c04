//! GGUF files, as llama.cpp writes them.

mod blocks;
mod header;
mod tokenizer;

use std::path::Path;

use assay_api::Dtype;

use self::header::{Header, TensorInfo, Value};
use crate::checkpoint::{Checkpoint, Source};
use crate::config::{MAX_LAYERS, MAX_POSITIONS, MAX_WIDTH, check_heads};
use crate::family::{Family, FamilySpec};
use crate::map::MappedFile;
use crate::tensor::{Format, StoredTensor, Tensors, WeightDtype, WeightFile};
use crate::{Architecture, CheckpointError, LayerSlot, Rope, RopeScaling, Slot, TextTokenizer};

pub(crate) use self::blocks::dequantise;

const SUPPORTED: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_1";
/// Divisors of the rotary frequencies; written for models with `llama3` scaling.
const ROPE_DIVISORS: &str = "rope_freqs.weight";

/// What is kept of a GGUF file beside its tensors.
#[derive(Debug)]
pub(crate) struct Gguf {
    metadata: std::collections::BTreeMap<String, Value>,
}

impl Gguf {
    pub(crate) fn tokenizer(&self, file: &WeightFile) -> Result<TextTokenizer, CheckpointError> {
        let keys = Keys {
            file: &file.label,
            bytes: &file.map,
            metadata: &self.metadata,
        };
        tokenizer::build(&keys)
    }
}

/// Opens a GGUF file; `name` is what it is called in errors.
pub(crate) fn open(path: &Path, name: String) -> Result<Checkpoint, CheckpointError> {
    let map = MappedFile::open(path).map_err(|error| CheckpointError::io(&name, error))?;
    if !map.starts_with(header::MAGIC) {
        return Err(CheckpointError::NotACheckpoint {
            path: name,
            detail: "a file must be GGUF; for safetensors give the directory".into(),
        });
    }
    let Header {
        metadata,
        tensors,
        data,
    } = header::read(&map).map_err(|detail| CheckpointError::damaged(&name, detail))?;
    let mut stored = locate(&name, &map, tensors, data)?;
    let keys = Keys {
        file: &name,
        bytes: &map,
        metadata: &metadata,
    };
    let divisors = stored.by_name.remove(ROPE_DIVISORS);
    let architecture = architecture(&keys, &stored, divisors.as_ref())?;
    stored.files.push(WeightFile {
        label: name.clone(),
        path: path.to_owned(),
        map,
    });
    let weights = stored.bind(&name, &architecture, &architecture.family.spec().gguf)?;
    Ok(Checkpoint {
        name,
        source: Source::Gguf(Gguf { metadata }),
        architecture,
        default_dtype: Dtype::Float32,
        warnings: Vec::new(),
        files: stored,
        weights,
    })
}

/// Turns offsets into ranges inside of the file that do not overlap.
fn locate(
    file: &str,
    bytes: &[u8],
    infos: Vec<TensorInfo>,
    data: usize,
) -> Result<Tensors, CheckpointError> {
    let mut tensors = Tensors::default();
    let mut ranges = Vec::new();
    for TensorInfo {
        name,
        shape,
        format,
        offset,
    } in infos
    {
        let format = format.map_err(|dtype| CheckpointError::UnsupportedDtype {
            file: file.to_owned(),
            tensor: name.clone(),
            dtype,
            supported: SUPPORTED,
        })?;
        let range = range(&shape, format, data, offset)
            .filter(|range| range.end <= bytes.len())
            .ok_or_else(|| {
                let detail = format!(
                    "tensor `{name}` of shape {shape:?} at offset {offset} does not lie within \
                     its {} bytes",
                    bytes.len()
                );
                CheckpointError::damaged(file, detail)
            })?;
        ranges.push((range.start, range.end, name.clone()));
        tensors.by_name.insert(
            name,
            StoredTensor {
                file: 0,
                bytes: range,
                shape,
                format,
            },
        );
    }
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        None => Ok(tensors),
        Some(pair) => {
            let detail = format!("tensors `{}` and `{}` overlap", pair[0].2, pair[1].2);
            Err(CheckpointError::damaged(file, detail))
        }
    }
}

/// Where a tensor lies; nothing if its rows are no whole blocks or a number overflows.
fn range(
    shape: &[usize],
    format: Format,
    data: usize,
    offset: u64,
) -> Option<std::ops::Range<usize>> {
    let fastest = shape.last().copied().unwrap_or(1);
    if fastest % format.block_elements() != 0 {
        return None;
    }
    let elements = shape
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))?;
    let length = (elements / format.block_elements()).checked_mul(format.block_bytes())?;
    let start = data.checked_add(usize::try_from(offset).ok()?)?;
    Some(start..start.checked_add(length)?)
}

fn architecture(
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
            .map_or(0, |tensor| tensor.shape[0]),
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
        Err(CheckpointError::unsupported(
            keys.file,
            key,
            value.to_string(),
            remedy,
        ))
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

/// Heads whose rows the file interleaves, if it does for this slot.
pub(crate) fn interleaved_heads(architecture: &Architecture, slot: LayerSlot) -> Option<usize> {
    let spec: &FamilySpec = architecture.family.spec();
    spec.gguf_interleaved.contains(&slot).then_some(match slot {
        LayerSlot::Query => architecture.heads,
        _ => architecture.kv_heads,
    })
}

/// Undoes the row order of llama.cpp's conversion (`LlamaModel.permute` in convert_hf_to_gguf.py).
///
/// There, row `h, i, j` of `[heads, head_dim / 2, 2]` is row `h, j, i` of
/// `[heads, 2, head_dim / 2]` here. Rows are whole blocks, so stored bytes can be moved.
pub(crate) fn uninterleave(stored: &[u8], heads: usize, head_dim: usize) -> Vec<u8> {
    let row = stored.len() / (heads * head_dim);
    let half = head_dim / 2;
    let mut rows = Vec::with_capacity(stored.len());
    for head in 0..heads {
        for (j, i) in (0..2).flat_map(|j| (0..half).map(move |i| (j, i))) {
            let from = (head * head_dim + 2 * i + j) * row;
            rows.extend_from_slice(&stored[from..from + row]);
        }
    }
    rows
}

/// Typed access to metadata.
pub(crate) struct Keys<'a> {
    file: &'a str,
    bytes: &'a [u8],
    metadata: &'a std::collections::BTreeMap<String, Value>,
}

impl<'a> Keys<'a> {
    fn typed<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        let wrong = || CheckpointError::configuration(self.file, key, format!("must be {wanted}"));
        read(value).ok_or_else(wrong).map(Some)
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.typed(key, "a text", |value| match value {
            Value::Text(range) => std::str::from_utf8(&self.bytes[range.clone()]).ok(),
            _ => None,
        })
    }

    fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>, CheckpointError> {
        self.typed(key, "an array of texts", |value| {
            header::texts(self.bytes, value)
        })
    }

    fn integers(&self, key: &str) -> Result<Option<Vec<i128>>, CheckpointError> {
        self.typed(key, "an array of integers", |value| {
            header::integers(self.bytes, value)
        })
    }

    fn flag(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(key, "true or false", |value| match value {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        })
    }

    fn integer(&self, key: &str) -> Result<Option<i128>, CheckpointError> {
        self.typed(key, "an integer", |value| match value {
            Value::Integer(number) => Some(*number),
            _ => None,
        })
    }

    fn positive(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(key, "a positive number", |value| match value {
            Value::Float(number) => {
                Some(*number).filter(|number| number.is_finite() && *number > 0.0)
            }
            _ => None,
        })
    }

    fn required_positive(&self, key: &str) -> Result<f64, CheckpointError> {
        self.positive(key)?.ok_or_else(|| self.missing(key))
    }

    fn size(&self, key: &str, most: u64) -> Result<Option<usize>, CheckpointError> {
        self.typed(
            key,
            &format!("an integer from 1 to {most}"),
            |value| match value {
                Value::Integer(number) if (1..=i128::from(most)).contains(number) => {
                    usize::try_from(*number).ok()
                }
                _ => None,
            },
        )
    }

    fn required_size(&self, key: &str, most: u64) -> Result<usize, CheckpointError> {
        self.size(key, most)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> CheckpointError {
        CheckpointError::configuration(self.file, key, "is missing")
    }
}
