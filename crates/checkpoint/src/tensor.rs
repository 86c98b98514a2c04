//! Stored tensors, whatever kind of file they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;

use assay_api::Dtype;

use half::{bf16, f16};

use crate::map::MappedFile;
use crate::names::{HEAD, Layout, NameTable, Take, bare, take_of, tensor_of, tensors_of};
use crate::weight::Bound;
use crate::{Architecture, CheckpointError, Place, QkNorm, Slot};

/// Element type of a [`crate::Weight`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightDtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl WeightDtype {
    pub(crate) const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// The name in config.json.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }

    /// The numbers of stored elements.
    pub(crate) fn to_float32(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => numbers(bytes, f32::from_le_bytes),
            Self::F16 => numbers(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Self::Bf16 => numbers(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        }
    }

    /// What `dtype: auto` computes in.
    pub(crate) const fn computed_in(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bfloat16,
            Self::F32 | Self::F16 => Dtype::Float32,
        }
    }
}

fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (elements, _) = bytes.as_chunks::<N>();
    elements.iter().map(|bytes| number(*bytes)).collect()
}

/// How a tensor's elements are stored: one by one, or in blocks of ggml's formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain(WeightDtype),
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
}

/// What is to know of a format before its elements are read.
#[derive(Debug)]
pub(crate) struct FormatSpec {
    pub(crate) format: Format,
    /// ggml's name.
    pub(crate) name: &'static str,
    /// Its number in a GGUF file, a `ggml_type`.
    pub(crate) ggml_type: u32,
    /// Elements in a block; 1 where there are none.
    pub(crate) block_elements: usize,
    /// Bytes of a block.
    pub(crate) block_bytes: usize,
}

impl FormatSpec {
    const fn new(
        format: Format,
        name: &'static str,
        ggml_type: u32,
        (block_elements, block_bytes): (usize, usize),
    ) -> Self {
        Self {
            format,
            name,
            ggml_type,
            block_elements,
            block_bytes,
        }
    }
}

/// The formats that can be read, the plain ones first.
pub(crate) static FORMATS: [FormatSpec; 14] = [
    FormatSpec::new(Format::Plain(WeightDtype::F32), "F32", 0, (1, 4)),
    FormatSpec::new(Format::Plain(WeightDtype::F16), "F16", 1, (1, 2)),
    FormatSpec::new(Format::Plain(WeightDtype::Bf16), "BF16", 30, (1, 2)),
    FormatSpec::new(Format::Q4_0, "Q4_0", 2, (32, 18)),
    FormatSpec::new(Format::Q4_1, "Q4_1", 3, (32, 20)),
    FormatSpec::new(Format::Q5_0, "Q5_0", 6, (32, 22)),
    FormatSpec::new(Format::Q5_1, "Q5_1", 7, (32, 24)),
    FormatSpec::new(Format::Q8_0, "Q8_0", 8, (32, 34)),
    FormatSpec::new(Format::Q2K, "Q2_K", 10, (256, 84)),
    FormatSpec::new(Format::Q3K, "Q3_K", 11, (256, 110)),
    FormatSpec::new(Format::Q4K, "Q4_K", 12, (256, 144)),
    FormatSpec::new(Format::Q5K, "Q5_K", 13, (256, 176)),
    FormatSpec::new(Format::Q6K, "Q6_K", 14, (256, 210)),
    FormatSpec::new(Format::Iq4Nl, "IQ4_NL", 20, (32, 18)),
];

impl Format {
    /// Its row of [`FORMATS`].
    pub(crate) fn spec(self) -> &'static FormatSpec {
        let mut rows = FORMATS.iter();
        let found = rows.find(|spec| spec.format == self);
        found.expect("every format has a row")
    }

    /// The element type, where elements are stored one by one.
    pub(crate) const fn plain(self) -> Option<WeightDtype> {
        match self {
            Self::Plain(dtype) => Some(dtype),
            _ => None,
        }
    }
}

/// Where a tensor lies and what it looks like.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredTensor {
    /// Index of the file in [`Tensors::files`].
    pub(crate) file: usize,
    pub(crate) bytes: Range<usize>,
    /// Slowest dimension first.
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Format,
}

/// A file with weights.
#[derive(Debug)]
pub(crate) struct WeightFile {
    /// Its name in errors.
    pub(crate) label: String,
    pub(crate) path: PathBuf,
    pub(crate) map: MappedFile,
}

/// The tensors of a checkpoint under the names they are stored by, buffers left out.
#[derive(Debug, Default)]
pub(crate) struct Tensors {
    pub(crate) files: Vec<WeightFile>,
    pub(crate) by_name: BTreeMap<String, StoredTensor>,
}

impl Tensors {
    /// The stored bytes. Readers of headers put only ranges inside of the file into `by_name`.
    pub(crate) fn bytes(&self, tensor: &StoredTensor) -> &[u8] {
        &self.files[tensor.file].map[tensor.bytes.clone()]
    }

    /// The tensor of this name, whatever wrappers a training tool left in front of it: the name it
    /// is stored by.
    pub(crate) fn find(&self, name: &str) -> Option<(&String, &StoredTensor)> {
        let stored = self.by_name.get_key_value(name);
        stored.or_else(|| {
            let wanted = bare(name);
            self.by_name
                .iter()
                .find(|(stored, _)| bare(stored) == wanted)
        })
    }

    /// Gives every slot of the architecture its tensors.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, is there twice under different wrappers of its
    /// name, or is left over.
    pub(crate) fn bind(
        &self,
        checkpoint: &str,
        architecture: &Architecture,
        names: NameTable,
    ) -> Result<BTreeMap<Slot, Bound>, CheckpointError> {
        let stored = self.by_bare()?;
        let mut used = BTreeSet::new();
        let mut bound = BTreeMap::new();
        for (slot, shape) in architecture.each_slot() {
            let (pattern, take) = name_of(&stored, names, slot)
                .ok_or_else(|| missing(checkpoint, format!("{:?}", slot.place), slot))?;
            let by_head = pattern.contains(HEAD);
            let heads = if by_head {
                shape[0] / architecture.head_dim
            } else {
                1
            };
            let rows = shape[0] / heads.max(1);
            let layout = Layout::new(architecture, slot.place, rows, take_of(take, &shape));
            let expected = stored_shape(architecture, slot, &shape, &layout, by_head);
            let mut tensors: Vec<StoredTensor> = Vec::new();
            for name in tensors_of(&pattern, slot, heads) {
                let Some(&(own, tensor)) = stored.get(bare(&name).as_ref()) else {
                    return Err(missing(checkpoint, name, slot));
                };
                self.check(own, tensor, &expected, tensors.first())?;
                used.insert(own);
                tensors.push(tensor.clone());
            }
            let one = Bound {
                shape,
                tensors,
                layout,
                low_rank: None,
            };
            bound.insert(slot, one);
        }
        let mut unused = self.by_name.iter();
        match unused.find(|(name, _)| !used.contains(name.as_str())) {
            None => Ok(bound),
            Some((name, tensor)) => Err(CheckpointError::UnusedTensor {
                file: self.files[tensor.file].label.clone(),
                tensor: name.clone(),
            }),
        }
    }

    /// Refuses a tensor of another shape, of another format than the first one of its slot, or a
    /// vector in blocks, of which a row would be a part of one.
    fn check(
        &self,
        name: &str,
        tensor: &StoredTensor,
        expected: &[usize],
        first: Option<&StoredTensor>,
    ) -> Result<(), CheckpointError> {
        let file = self.files[tensor.file].label.clone();
        if tensor.shape != expected {
            return Err(CheckpointError::WrongShape {
                file,
                tensor: name.to_owned(),
                stored: tensor.shape.clone(),
                expected: expected.to_vec(),
            });
        }
        let refused = |supported: &'static str| CheckpointError::UnsupportedDtype {
            file: file.clone(),
            tensor: name.to_owned(),
            dtype: tensor.format.spec().name.to_owned(),
            supported,
        };
        if first.is_some_and(|first| first.format != tensor.format) {
            return Err(refused("the dtype of the other heads"));
        }
        if expected.len() == 1 && tensor.format.plain().is_none() {
            return Err(refused("F32, F16, BF16"));
        }
        Ok(())
    }

    /// The tensors by their names without wrappers, with the names they are stored by.
    fn by_bare(&self) -> Result<BTreeMap<String, (&str, &StoredTensor)>, CheckpointError> {
        let mut found: BTreeMap<String, (&str, &StoredTensor)> = BTreeMap::new();
        for (name, tensor) in &self.by_name {
            if let Some((other, _)) = found.insert(bare(name).into_owned(), (name, tensor)) {
                let file = &self.files[tensor.file].label;
                let detail = format!("tensors `{other}` and `{name}` are the same weight twice");
                return Err(CheckpointError::damaged(file, detail));
            }
        }
        Ok(found)
    }
}

/// The first name of a slot's weight that is stored, or else the first there is, and how it lies
/// there.
fn name_of(
    stored: &BTreeMap<String, (&str, &StoredTensor)>,
    names: NameTable,
    slot: Slot,
) -> Option<(String, Take)> {
    let is_there = |pattern: &str| stored.contains_key(bare(&tensor_of(pattern, slot)).as_ref());
    let mut known = names.of(slot.place);
    let found = known.clone().find(|(pattern, _)| is_there(pattern));
    found.or_else(|| known.next())
}

/// The shape that a tensor of this slot must have in the file.
pub(crate) fn stored_shape(
    architecture: &Architecture,
    slot: Slot,
    shape: &[usize],
    layout: &Layout,
    by_head: bool,
) -> Vec<usize> {
    let each_head = architecture.qk_norm == Some(QkNorm::EachHead)
        && matches!(slot.place, Place::QueryNorm | Place::KeyNorm);
    let head_dim = architecture.head_dim;
    if each_head && !by_head {
        return vec![layout.stored_rows / head_dim, head_dim];
    }
    let mut stored = shape.to_vec();
    stored[0] = layout.stored_rows;
    if layout.transposed {
        stored.reverse();
    }
    stored
}

fn missing(checkpoint: &str, tensor: String, slot: Slot) -> CheckpointError {
    let hint = match slot.place {
        Place::Head => {
            "; store the head, or set `tie_word_embeddings` to true if it is the embedding"
        }
        _ => "; give the complete checkpoint, or the configuration that belongs to it",
    };
    CheckpointError::MissingTensor {
        file: checkpoint.to_owned(),
        tensor,
        hint,
    }
}
