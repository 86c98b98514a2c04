//! GGUF files, as llama.cpp writes them.

mod blocks;
mod byte_level;
mod config;
mod header;
mod keys;
mod pre_tokenizer;
mod scored;
mod tokenizer;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use assay_api::Dtype;

use self::config::RopeTensors;
use self::header::{Header, TensorInfo, Value};
use self::keys::Keys;
use self::pre_tokenizer::PRE_TOKENIZERS;
use crate::checkpoint::{Checkpoint, Source};
use crate::map::MappedFile;
use crate::tensor::{FORMATS, Format, StoredTensor, Tensors, WeightFile};
use crate::{ChatTemplate, CheckpointError, TextTokenizer};

pub(crate) use self::blocks::dequantise;

/// The names of all formats, for errors.
static SUPPORTED: LazyLock<String> =
    LazyLock::new(|| FORMATS.each_ref().map(|spec| spec.name).join(", "));
/// Divisors of the rotary frequencies; written for models with `llama3` scaling.
const ROPE_DIVISORS: &str = "rope_freqs.weight";
/// Divisors for short and long windows; written for models with `longrope` scaling.
const ROPE_SHORT: &str = "rope_factors_short.weight";
const ROPE_LONG: &str = "rope_factors_long.weight";

/// ggml's names of the formats that tensors of a GGUF file may have.
pub fn gguf_formats() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|spec| spec.name)
}

/// Names in `tokenizer.ggml.pre` that are known, those that mean the same together.
pub fn gguf_pre_tokenizers() -> impl Iterator<Item = &'static [&'static str]> {
    PRE_TOKENIZERS.iter().map(|pre| pre.names)
}

/// What is kept of a GGUF file beside its tensors.
#[derive(Debug)]
pub(crate) struct Gguf {
    metadata: BTreeMap<String, Value>,
    /// Where the tensors' bytes begin, beyond the end if there are none.
    data: usize,
}

impl Gguf {
    /// The bytes that everything but the weights is read of.
    pub(crate) fn header<'a>(&self, file: &'a WeightFile) -> &'a [u8] {
        file.map.get(..self.data).unwrap_or(&file.map)
    }

    pub(crate) fn tokenizer(&self, file: &WeightFile) -> Result<TextTokenizer, CheckpointError> {
        tokenizer::build(&self.keys(file))
    }

    pub(crate) fn chat_template(
        &self,
        file: &WeightFile,
    ) -> Result<Option<ChatTemplate>, CheckpointError> {
        tokenizer::chat_template(&self.keys(file))
    }

    fn keys<'a>(&'a self, file: &'a WeightFile) -> Keys<'a> {
        Keys {
            file: &file.label,
            bytes: &file.map,
            metadata: &self.metadata,
        }
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
    let rope = RopeTensors::of(&stored);
    let (architecture, names) = config::architecture(&keys, &stored, &rope)?;
    if !architecture.ropes().is_empty() {
        for name in rope.names() {
            stored.by_name.remove(name);
        }
    }
    let warnings = tokenizer::warning(&keys)?.into_iter().collect();
    stored.files.push(WeightFile {
        label: name.clone(),
        path: path.to_owned(),
        map,
    });
    let weights = stored.bind(&name, &architecture, names)?;
    Ok(Checkpoint {
        name,
        source: Source::Gguf(Gguf { metadata, data }),
        architecture,
        default_dtype: Dtype::Float32,
        warnings,
        files: stored,
        weights,
        adapter: None,
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
            supported: &SUPPORTED,
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
fn range(shape: &[usize], format: Format, data: usize, offset: u64) -> Option<Range<usize>> {
    let spec = format.spec();
    let fastest = shape.last().copied().unwrap_or(1);
    if fastest % spec.block_elements != 0 {
        return None;
    }
    let elements = shape
        .iter()
        .try_fold(1_usize, |product, size| product.checked_mul(*size))?;
    let length = (elements / spec.block_elements).checked_mul(spec.block_bytes)?;
    let start = data.checked_add(usize::try_from(offset).ok()?)?;
    Some(start..start.checked_add(length)?)
}
