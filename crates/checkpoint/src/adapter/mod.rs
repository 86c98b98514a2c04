//! LoRA adapters, as PEFT writes them: what they add to the weights of a base.

mod config;
mod tensors;

use std::collections::BTreeSet;

use self::config::LoraConfig;
use self::tensors::{Found, Module};
use crate::checkpoint::Checkpoint;
use crate::directory::Directory;
use crate::map::MappedFile;
use crate::names::{Layout, bare, entries, take_of, tensors_of};
use crate::tensor::{StoredTensor, Tensors, WeightFile};
use crate::weight::Bound;
use crate::{Architecture, CheckpointError, Param, Place, Slot, safetensors};

pub(crate) const CONFIG: &str = "adapter_config.json";
pub(crate) const WEIGHTS: &str = "adapter_model.safetensors";
const PICKLE: &str = "adapter_model.bin";

/// A product of two matrices that is added to a weight: `scale * left @ right`.
#[derive(Clone, Debug, PartialEq)]
pub struct LowRank {
    /// `[rows of the weight, rank]`, row by row.
    pub left: Vec<f32>,
    /// `[rank, columns of the weight]`, row by row.
    pub right: Vec<f32>,
    /// The rank.
    pub rank: usize,
    /// The factor.
    pub scale: f64,
}

/// Adds the adapter in `directory` to the weights of `base`.
///
/// # Errors
/// It is no LoRA adapter, of a kind that is not supported, or of another base.
pub(crate) fn apply(base: &mut Checkpoint, directory: Directory) -> Result<(), CheckpointError> {
    let label = directory.label(CONFIG);
    let bytes = directory
        .read(CONFIG)?
        .ok_or_else(|| CheckpointError::NotACheckpoint {
            path: directory.name.clone(),
            detail: format!(
                "it has no {CONFIG}; give the directory that PEFT's save_pretrained wrote"
            ),
        })?;
    let config = LoraConfig::parse(&label, &bytes)?;
    let label = directory.label(WEIGHTS);
    let path = directory.path.join(WEIGHTS);
    if !path.exists() && directory.path.join(PICKLE).exists() {
        return Err(CheckpointError::Pickle {
            file: directory.label(PICKLE),
        });
    }
    let map = MappedFile::open(&path).map_err(|error| CheckpointError::io(&label, error))?;
    let file = base.files.files.len();
    let stored = safetensors::read(file, &label, &map, |_| false)?;
    base.files.files.push(WeightFile { label, path, map });
    let found = Found::new(stored);

    untie(base, &found);
    let mut used = BTreeSet::new();
    let names = base.architecture.family.spec().safetensors;
    for (slot, bound) in &mut base.weights {
        for (pattern, take) in entries(names, slot.place) {
            if pattern.contains("{head}") {
                continue;
            }
            let weight = Slot {
                param: Param::Weight,
                ..*slot
            };
            let name = &tensors_of(pattern, weight, 1)[0];
            let module = name.strip_suffix(".weight").unwrap_or(name);
            let Some(module) = found.modules.get(bare(module).as_ref()) else {
                continue;
            };
            let layout = Layout::new(
                &base.architecture,
                slot.place,
                bound.shape[0],
                take_of(take, &bound.shape),
            );
            let change = Change {
                config: &config,
                files: &base.files,
                architecture: &base.architecture,
                module,
                layout,
            };
            change.make(*slot, bound, &mut used)?;
        }
    }
    match found.unused(&used) {
        None => {
            base.adapter = Some(directory);
            Ok(())
        }
        Some(tensor) => Err(CheckpointError::UnusedTensor {
            file: base.files.files[file].label.clone(),
            tensor,
        }),
    }
}

/// Gives a head that is the embedding a place of its own, where the adapter changes one of the
/// two: while it was trained, the other one stayed as it was.
fn untie(base: &mut Checkpoint, found: &Found) {
    let names = base.architecture.family.spec().safetensors;
    let is_changed = |place: Place| {
        entries(names, place).any(|(pattern, _)| {
            let name = &tensors_of(pattern, Slot::model(place), 1)[0];
            let module = name.strip_suffix(".weight").unwrap_or(name);
            found.modules.contains_key(bare(module).as_ref())
        })
    };
    let changed = is_changed(Place::Embedding) || is_changed(Place::Head);
    if !base.architecture.tied_head || !changed {
        return;
    }
    let embedding = base.weights.get(&Slot::model(Place::Embedding)).cloned();
    let Some(embedding) = embedding else { return };
    base.weights.insert(Slot::model(Place::Head), embedding);
    base.architecture.tied_head = false;
    base.warnings.push(
        "the head of the base is its embedding, and the adapter changes one of the two: each has \
         its own change, as in training; merge_and_unload of PEFT changes both"
            .to_owned(),
    );
}

/// What an adapter does to one slot.
struct Change<'a> {
    config: &'a LoraConfig,
    files: &'a Tensors,
    architecture: &'a Architecture,
    module: &'a Module,
    /// How the slot's weight lies in the tensor of the adapter's base.
    layout: Layout,
}

impl Change<'_> {
    fn make(
        &self,
        slot: Slot,
        bound: &mut Bound,
        used: &mut BTreeSet<String>,
    ) -> Result<(), CheckpointError> {
        let replaced = match slot.param {
            Param::Weight => &self.module.weight,
            Param::Bias => &self.module.bias,
        };
        if let Some((name, tensor)) = replaced {
            let mut shape = bound.shape.clone();
            shape[0] = self.layout.stored_rows;
            if self.layout.transposed {
                shape.reverse();
            }
            self.check(name, tensor, &shape)?;
            used.insert(name.clone());
            bound.tensors = vec![tensor.clone()];
            bound.layout = self.layout.clone();
        }
        if slot.param == Param::Weight
            && let Some(low_rank) = self.low_rank(slot, bound, used)?
        {
            bound.low_rank = Some(low_rank);
        }
        Ok(())
    }

    fn low_rank(
        &self,
        slot: Slot,
        bound: &Bound,
        used: &mut BTreeSet<String>,
    ) -> Result<Option<LowRank>, CheckpointError> {
        let Some((down, up)) = &self.module.factors else {
            return Ok(None);
        };
        let [(down_name, down), (up_name, up)] = [down, up];
        // Embeddings are looked up by row, so their factors are those of the transposed matrix.
        let is_embedding = matches!(slot.place, Place::Embedding | Place::Positions);
        if is_embedding != self.module.embedding || bound.shape.len() != 2 {
            return Ok(None);
        }
        let (rows, columns) = (self.layout.stored_rows, bound.shape[1]);
        let rank = down.shape.first().copied().unwrap_or(0);
        let (inner, outer) = if is_embedding {
            (rows, columns)
        } else {
            (columns, rows)
        };
        self.check(down_name, down, &[rank, inner])?;
        self.check(up_name, up, &[outer, rank])?;
        let scale = self.config.scale(&self.module.name, rank)?;
        used.extend([down_name.clone(), up_name.clone()]);

        let numbers = |tensor: &StoredTensor| {
            let dtype = tensor.format.plain();
            let bytes = self.files.bytes(tensor);
            dtype.map_or_else(Vec::new, |dtype| dtype.to_float32(bytes))
        };
        let (down, up) = (numbers(down), numbers(up));
        let (by_row, right) = if is_embedding {
            (transposed(&down, rank), transposed(&up, outer))
        } else {
            (up, down)
        };
        let left = self.layout.rows.runs().flatten();
        let left = left.flat_map(|row| by_row[row * rank..(row + 1) * rank].iter().copied());
        Ok(Some(LowRank {
            left: left.collect(),
            right,
            rank,
            scale,
        }))
    }

    fn check(
        &self,
        name: &str,
        tensor: &StoredTensor,
        expected: &[usize],
    ) -> Result<(), CheckpointError> {
        if tensor.shape == expected {
            return Ok(());
        }
        Err(CheckpointError::OtherBase {
            file: self.files.files[tensor.file].label.clone(),
            tensor: name.to_owned(),
            stored: tensor.shape.clone(),
            expected: expected.to_vec(),
            family: self.architecture.family.name(),
        })
    }
}

/// The transposed of a matrix of so many rows.
fn transposed(matrix: &[f32], rows: usize) -> Vec<f32> {
    let columns = matrix.len() / rows.max(1);
    let column = |column: usize| (0..rows).map(move |row| matrix[row * columns + column]);
    (0..columns).flat_map(column).collect()
}
