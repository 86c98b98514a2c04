//! An opened checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use assay_api::Dtype;

use crate::adapter;
use crate::digest::{FileState, sha256};
use crate::directory::{self, Directory};
use crate::gguf::{self, Gguf};
use crate::tensor::{Tensors, WeightFile};
use crate::tokenizer::TextTokenizer;
use crate::weight::Bound;
use crate::{
    Architecture, ChatTemplate, CheckpointError, DigestCache, Slot, Tokenizers, Weight,
    hf_tokenizer,
};

/// A checkpoint whose headers are read and checked, with its weights mapped.
#[derive(Debug)]
pub struct Checkpoint {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) architecture: Architecture,
    pub(crate) default_dtype: Dtype,
    pub(crate) warnings: Vec<String>,
    pub(crate) files: Tensors,
    pub(crate) weights: BTreeMap<Slot, Bound>,
    /// Name of the adapter that was added, and the digest of its configuration as it was read. Its
    /// file is the last.
    pub(crate) adapter: Option<(String, String)>,
}

/// Where a checkpoint came from.
#[derive(Debug)]
pub(crate) enum Source {
    /// With the digest of config.json as it was read, in hexadecimal.
    Directory(Directory, String),
    Gguf(Gguf),
}

impl Checkpoint {
    /// Opens a Hugging Face directory (config.json, safetensors files, tokenizer.json) or a GGUF
    /// file, and checks everything that can be checked without reading weights: the architecture
    /// is known, every tensor is there and has its shape, none is left over, offsets lie inside
    /// of the files and do not overlap, formats are supported.
    ///
    /// # Errors
    /// The first of these that does not hold, in a sentence that names it.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let name = name_of(path);
        let metadata = path
            .metadata()
            .map_err(|error| CheckpointError::io(&name, error))?;
        if metadata.is_dir() {
            directory::open(Directory {
                path: path.to_owned(),
                name,
            })
        } else if directory::is_pickle(path) {
            Err(CheckpointError::Pickle { file: name })
        } else {
            gguf::open(path, name)
        }
    }

    /// [`Checkpoint::open`], and [`Checkpoint::with_adapter`] if there is one.
    ///
    /// # Errors
    /// Those of the two.
    pub fn open_with(path: &Path, adapter: Option<&Path>) -> Result<Self, CheckpointError> {
        let base = Self::open(path)?;
        match adapter {
            Some(adapter) => base.with_adapter(adapter),
            None => Ok(base),
        }
    }

    /// The checkpoint with what a LoRA adapter adds to it: the directory that PEFT's
    /// `save_pretrained` wrote. Its names are those of Hugging Face's form of the base, be the
    /// base a GGUF file. Tokenizer and chat template stay the base's.
    ///
    /// # Errors
    /// The adapter is damaged, of a kind that is not supported, or of another base.
    pub fn with_adapter(mut self, adapter: &Path) -> Result<Self, CheckpointError> {
        let directory = Directory {
            path: adapter.to_owned(),
            name: name_of(adapter),
        };
        adapter::apply(&mut self, &directory)?;
        Ok(self)
    }

    /// The architecture, in the terms of the decoder.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// What `dtype: auto` computes in: bfloat16 for bfloat16 checkpoints, else float32.
    pub fn default_dtype(&self) -> Dtype {
        self.default_dtype
    }

    /// Number of parameters; tied weights count once.
    pub fn parameters(&self) -> u64 {
        self.weights.values().map(|one| one.elements() as u64).sum()
    }

    /// What a reader of results should know about this checkpoint.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// `sha256:` and the digest of what decides the numbers. GGUF: of the file. Directory: of the
    /// listing that `sha256sum` prints (`<hex>  <name>` a line) of config.json and the weight
    /// files in name order. With an adapter: of the listing of that digest, named `base`, and of
    /// the adapter's two files.
    ///
    /// The weights are those that were mapped by [`Checkpoint::open`]: a file that has been written
    /// or replaced since then is refused.
    ///
    /// # Errors
    /// A file cannot be read, or is another one by now.
    pub fn digest(&self, cache: &DigestCache) -> Result<String, CheckpointError> {
        let mapped = |weights: &WeightFile| {
            let (hex, state) = cache
                .file_in_state(&weights.path)
                .map_err(|error| CheckpointError::io(&weights.label, error))?;
            state
                .has_same_content(weights.map.state())
                .then_some(hex)
                .ok_or_else(|| CheckpointError::Changed {
                    file: weights.label.clone(),
                })
        };
        let listing = |digests: &BTreeMap<String, String>| {
            sha256(|hasher| {
                use sha2::Digest as _;
                for (name, hex) in digests {
                    hasher.update(format!("{hex}  {name}\n"));
                }
            })
        };
        let adapted = usize::from(self.adapter.is_some());
        let (own, of_adapter) = self.files.files.split_at(self.files.files.len() - adapted);
        let hex = match &self.source {
            Source::Gguf(_) => mapped(&own[0])?,
            Source::Directory(_, config) => {
                let mut digests = BTreeMap::from([(directory::CONFIG.to_owned(), config.clone())]);
                for weights in own {
                    let name = weights
                        .path
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy();
                    digests.insert(name.into_owned(), mapped(weights)?);
                }
                listing(&digests)
            }
        };
        let hex = match (&self.adapter, of_adapter) {
            (Some((_, config)), [weights]) => listing(&BTreeMap::from([
                ("base".to_owned(), hex),
                (adapter::CONFIG.to_owned(), config.clone()),
                (adapter::WEIGHTS.to_owned(), mapped(weights)?),
            ])),
            _ => hex,
        };
        Ok(format!("sha256:{hex}"))
    }

    /// Finds weight files that were written in place since they were mapped, so that what was read
    /// of them may not be what the digest is of. One that another took the place of is none of
    /// them: the map keeps the old one.
    ///
    /// # Errors
    /// A file was written.
    pub fn check_unwritten(&self) -> Result<(), CheckpointError> {
        for weights in &self.files.files {
            let mapped = weights.map.state();
            let now = weights.path.metadata().ok().as_ref().map(FileState::of);
            if now.is_some_and(|now| now.is_of_same_file(mapped) && !now.has_same_content(mapped)) {
                return Err(CheckpointError::Changed {
                    file: weights.label.clone(),
                });
            }
        }
        Ok(())
    }

    /// The tokenizer that comes with the checkpoint, built anew; [`Tokenizers::of`] keeps it.
    ///
    /// # Errors
    /// It is missing, damaged, of a kind that is not supported, or has more ids than the
    /// embedding has rows.
    pub fn tokenizer(&self) -> Result<TextTokenizer, CheckpointError> {
        Tokenizers::default().of(self)
    }

    /// The chat template that comes with the checkpoint, if one does.
    ///
    /// # Errors
    /// It is damaged, or no template.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, CheckpointError> {
        match &self.source {
            Source::Directory(directory, _) => hf_tokenizer::chat_template(directory),
            Source::Gguf(gguf) => gguf.chat_template(&self.files.files[0]),
        }
    }

    /// Whether the checkpoint has a weight of its own for this slot.
    pub fn has(&self, slot: Slot) -> bool {
        self.weights.contains_key(&slot)
    }

    /// The weight of a slot.
    ///
    /// # Errors
    /// The checkpoint has no weight for this slot, see [`Checkpoint::has`].
    pub fn weight(&self, slot: Slot) -> Result<Weight<'_>, CheckpointError> {
        let bound = self
            .weights
            .get(&slot)
            .ok_or_else(|| CheckpointError::MissingTensor {
                file: self.name.clone(),
                tensor: format!("{slot:?}"),
                hint: "; a tied head is the embedding",
            })?;
        Ok(Weight {
            bound,
            files: &self.files,
        })
    }

    /// Says that a weight will not be read soon: the pages of the file that hold it and nothing
    /// else may leave memory.
    pub fn release(&self, slot: Slot) {
        for tensor in self.weights.get(&slot).iter().flat_map(|one| &one.tensors) {
            self.files.files[tensor.file].map.release(&tensor.bytes);
        }
    }
}

/// What a path is called in errors.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
