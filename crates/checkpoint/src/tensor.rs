//! Stored tensors, whatever kind of file they are in.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use assay_api::Dtype;

use crate::family::NameTable;
use crate::map::MappedFile;
use crate::{Architecture, CheckpointError, Slot};

/// Element type of a [`Weight`].
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

    /// What `dtype: auto` computes in.
    pub(crate) const fn computed_in(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bfloat16,
            Self::F32 | Self::F16 => Dtype::Float32,
        }
    }
}

/// One weight, ready for the decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight<'a> {
    /// Element type of `data`.
    pub dtype: WeightDtype,
    /// `[out, in]` for matrices, `[size]` for norms.
    pub shape: Vec<usize>,
    /// The elements, row by row, little endian. Borrowed from the file where it stores them so.
    pub data: Cow<'a, [u8]>,
}

/// How a tensor's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Plain(WeightDtype),
    /// Blocks of 32: float16 scale, 32 signed bytes.
    Q8_0,
    /// Blocks of 32: float16 scale, 16 bytes of two unsigned halves, offset by 8.
    Q4_0,
    /// Blocks of 32: float16 scale and minimum, 16 bytes of two unsigned halves.
    Q4_1,
}

impl Format {
    /// The element type, where elements are stored one by one.
    pub(crate) const fn plain(self) -> Option<WeightDtype> {
        match self {
            Self::Plain(dtype) => Some(dtype),
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => None,
        }
    }

    /// Elements in a block; 1 where there are none.
    pub(crate) const fn block_elements(self) -> usize {
        match self {
            Self::Plain(_) => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 => 32,
        }
    }

    /// Bytes of a block.
    pub(crate) const fn block_bytes(self) -> usize {
        match self {
            Self::Plain(WeightDtype::F32) => 4,
            Self::Plain(WeightDtype::F16 | WeightDtype::Bf16) => 2,
            Self::Q8_0 => 34,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
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

    /// Gives every slot of the architecture its tensor.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, or is left over.
    pub(crate) fn bind(
        &mut self,
        checkpoint: &str,
        architecture: &Architecture,
        names: &NameTable,
    ) -> Result<BTreeMap<Slot, StoredTensor>, CheckpointError> {
        let mut bound = BTreeMap::new();
        for (slot, expected) in architecture.slots() {
            let name = names.name(slot);
            let Some(tensor) = self.by_name.remove(&name) else {
                return Err(CheckpointError::MissingTensor {
                    file: checkpoint.to_owned(),
                    tensor: name,
                    hint: missing_hint(slot),
                });
            };
            if tensor.shape != expected {
                return Err(CheckpointError::WrongShape {
                    file: self.files[tensor.file].label.clone(),
                    tensor: name,
                    stored: tensor.shape,
                    expected,
                });
            }
            bound.insert(slot, tensor);
        }
        match self.by_name.pop_first() {
            None => Ok(bound),
            Some((name, tensor)) => Err(CheckpointError::UnusedTensor {
                file: self.files[tensor.file].label.clone(),
                tensor: name,
            }),
        }
    }
}

fn missing_hint(slot: Slot) -> &'static str {
    match slot {
        Slot::Head => {
            "; store the head, or set `tie_word_embeddings` to true if it is the embedding"
        }
        _ => "; give the complete checkpoint, or the configuration that belongs to it",
    }
}
