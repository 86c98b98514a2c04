//! A checkpoint whose weights are not here: what its small files say of it.

use std::path::Path;

use assay_api::Dtype;

use crate::config::Configuration;
use crate::directory::{self, Directory};
use crate::tensor::WeightDtype;
use crate::{
    Architecture, ChatTemplate, CheckpointError, TextTokenizer, Tokenizers, adapter, hf_tokenizer,
};

/// What config.json and the tokenizer of a Hugging Face directory say, before its weights are
/// there. Whether they fit, [`Checkpoint::open`](crate::Checkpoint::open) finds out later.
#[derive(Debug)]
pub struct Preview {
    pub(crate) directory: Directory,
    pub(crate) architecture: Architecture,
    default_dtype: Option<Dtype>,
}

impl Preview {
    /// Reads config.json of a directory; `name` is what errors call it.
    ///
    /// # Errors
    /// The configuration is missing, damaged or of a model that is not supported.
    pub fn open(path: &Path, name: &str) -> Result<Self, CheckpointError> {
        let directory = named(path, name);
        let (configuration, _) = directory::configuration(&directory)?;
        let Configuration {
            architecture,
            dtype,
        } = configuration;
        Ok(Self {
            directory,
            architecture,
            default_dtype: dtype.map(WeightDtype::computed_in),
        })
    }

    /// Checks the configuration of an adapter: that it is a LoRA adapter of a kind that is
    /// supported. `name` is what errors call the directory.
    ///
    /// # Errors
    /// It is not.
    pub fn check_adapter(path: &Path, name: &str) -> Result<(), CheckpointError> {
        adapter::check(&named(path, name))
    }

    /// The architecture. A stored head that differs from the embedding may change `tied_head`.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// What `dtype: auto` computes in; none if only the weights tell.
    pub fn default_dtype(&self) -> Option<Dtype> {
        self.default_dtype
    }

    /// Number of parameters that the configuration comes to.
    pub fn parameters(&self) -> u64 {
        let sizes = self.architecture.each_slot();
        sizes
            .map(|(_, shape)| shape.iter().map(|size| *size as u64).product::<u64>())
            .sum()
    }

    /// The tokenizer that comes with the checkpoint, built anew; [`Tokenizers::of_preview`] keeps it.
    ///
    /// # Errors
    /// As for [`Checkpoint::tokenizer`](crate::Checkpoint::tokenizer).
    pub fn tokenizer(&self) -> Result<TextTokenizer, CheckpointError> {
        Tokenizers::default().of_preview(self)
    }

    /// The chat template that comes with the checkpoint, if one does.
    ///
    /// # Errors
    /// It is damaged, or no template.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, CheckpointError> {
        hf_tokenizer::chat_template(&self.directory)
    }
}

fn named(path: &Path, name: &str) -> Directory {
    Directory {
        path: path.to_owned(),
        name: name.to_owned(),
    }
}
