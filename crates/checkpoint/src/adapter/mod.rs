//! LoRA adapters, as PEFT writes them: what they add to the weights of a base.

mod config;
mod low_rank;
mod tensors;

use std::collections::BTreeSet;

use sha2::Digest as _;

use self::config::LoraConfig;
pub(crate) use self::low_rank::Factors;
pub use self::low_rank::LowRank;
use self::tensors::{Found, Module};
use crate::checkpoint::Checkpoint;
use crate::digest::sha256;
use crate::directory::Directory;
use crate::map::MappedFile;
use crate::names::{HEAD, Layout, module_of, take_of};
use crate::tensor::{StoredTensor, Tensors, WeightFile, stored_shape};
use crate::weight::Bound;
use crate::{Architecture, CheckpointError, Param, Place, Slot, safetensors};

pub(crate) const CONFIG: &str = "adapter_config.json";
pub(crate) const WEIGHTS: &str = "adapter_model.safetensors";
const PICKLE: &str = "adapter_model.bin";

/// Adds the adapter in `directory` to the weights of `base`.
///
/// # Errors
/// It is no LoRA adapter, of a kind that is not supported, or of another base.
pub(crate) fn apply(base: &mut Checkpoint, directory: &Directory) -> Result<(), CheckpointError> {
    let (config, digest) = configuration(directory)?;
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
        // A norm for each head is no module that PEFT changes.
        let mut patterns = names
            .of(slot.place)
            .filter(|(name, _)| !name.contains(HEAD));
        let found = patterns.find_map(|(pattern, take)| {
            let module = found.module(&module_of(&pattern, *slot))?;
            Some((module, take))
        });
        let Some((module, take)) = found else {
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
    match found.unused(&used) {
        None => {
            base.adapter = Some((directory.name.clone(), digest));
            Ok(())
        }
        Some(tensor) => Err(CheckpointError::NoSuchModule {
            file: base.files.files[file].label.clone(),
            tensor,
            family: base.architecture.family.name(),
        }),
    }
}

/// What adapter_config.json says, and the digest of what was read.
fn configuration(directory: &Directory) -> Result<(LoraConfig, String), CheckpointError> {
    let bytes = directory
        .read(CONFIG)?
        .ok_or_else(|| CheckpointError::NotACheckpoint {
            path: directory.name.clone(),
            detail: format!(
                "it has no {CONFIG}; give the directory that PEFT's save_pretrained wrote"
            ),
        })?;
    let config = LoraConfig::parse(&directory.label(CONFIG), &bytes)?;
    Ok((config, sha256(|hasher| hasher.update(&bytes))))
}

/// Checks what an adapter says of itself, where its weights or its base's are not there.
///
/// # Errors
/// The directory has no adapter_config.json, or that of an adapter that is not supported.
pub(crate) fn check(directory: &Directory) -> Result<(), CheckpointError> {
    configuration(directory).map(drop)
}

/// Gives a head that is the embedding a place of its own, where the adapter changes one of the
/// two: while it was trained, the other one stayed as it was.
fn untie(base: &mut Checkpoint, found: &Found) {
    let names = base.architecture.family.spec().safetensors;
    let is_changed = |place: Place| {
        let slot = Slot::model(place);
        let mut patterns = names.of(place);
        patterns.any(|(pattern, _)| found.module(&module_of(&pattern, slot)).is_some())
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
            let shape = &bound.shape;
            let shape = stored_shape(self.architecture, slot, shape, &self.layout, false);
            self.check(slot, name, tensor, &shape)?;
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
    ) -> Result<Option<Factors>, CheckpointError> {
        let Some((down, up)) = &self.module.factors else {
            return Ok(None);
        };
        let [(down_name, down), (up_name, up)] = [down, up];
        // Embeddings are looked up by row, so their factors are those of the transposed matrix.
        let by_columns = matches!(slot.place, Place::Embedding | Place::Positions);
        if by_columns != self.module.embedding || bound.shape.len() != 2 {
            return Ok(None);
        }
        let (rows, columns) = (self.layout.stored_rows, bound.shape[1]);
        let rank = down.shape.first().copied().unwrap_or(0);
        let (inner, outer) = if by_columns {
            (rows, columns)
        } else {
            (columns, rows)
        };
        self.check(slot, down_name, down, &[rank, inner])?;
        self.check(slot, up_name, up, &[outer, rank])?;
        let scale = self.config.scale(&self.module.name, rank)?;
        used.extend([down_name.clone(), up_name.clone()]);
        Ok(Some(Factors {
            down: down.clone(),
            up: up.clone(),
            by_columns,
            rows: self.layout.rows.clone(),
            rank,
            scale,
        }))
    }

    fn check(
        &self,
        slot: Slot,
        name: &str,
        tensor: &StoredTensor,
        expected: &[usize],
    ) -> Result<(), CheckpointError> {
        if tensor.shape == expected {
            return Ok(());
        }
        let file = self.files.files[tensor.file].label.clone();
        let rows = [tensor.shape.first(), expected.first()].map(|rows| rows.copied().unwrap_or(0));
        let is_vocabulary = matches!(slot.place, Place::Embedding | Place::Head);
        if is_vocabulary && rows[0] > rows[1] && tensor.shape.get(1) == expected.get(1) {
            return Err(CheckpointError::AddedTokens {
                file,
                tensor: name.to_owned(),
                rows: rows[0],
                expected: rows[1],
            });
        }
        Err(CheckpointError::OtherBase {
            file,
            tensor: name.to_owned(),
            stored: tensor.shape.clone(),
            expected: expected.to_vec(),
            family: self.architecture.family.name(),
        })
    }
}
