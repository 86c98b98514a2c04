//! Tokenizers that were built, by the bytes they were built of.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::Digest as _;

use crate::checkpoint::Source;
use crate::digest::sha256;
use crate::directory::Directory;
use crate::hf_tokenizer::{self, TokenizerFiles};
use crate::{Checkpoint, CheckpointError, Preview, TextTokenizer};

/// Tokenizers that are kept. One of 100,000 tokens takes some 50 MB.
const KEPT: usize = 4;

/// The tokenizers that were used last: building one takes longer than all else that is looked at
/// before a job runs, and the checkpoints of one training have the same.
///
/// Each is known by the SHA-256 of the bytes that it was built of, which are read each time: a
/// tokenizer that was changed is another one. Clones share what is kept.
#[derive(Clone, Debug, Default)]
pub struct Tokenizers(Arc<Mutex<VecDeque<(String, TextTokenizer)>>>);

impl Tokenizers {
    /// The tokenizer that comes with a checkpoint.
    ///
    /// # Errors
    /// As for [`Checkpoint::tokenizer`].
    pub fn of(&self, checkpoint: &Checkpoint) -> Result<TextTokenizer, CheckpointError> {
        let tokenizer = match &checkpoint.source {
            Source::Directory(directory, _) => self.of_directory(directory)?,
            Source::Gguf(gguf) => {
                let file = &checkpoint.files.files[0];
                let key = sha256(|hasher| hasher.update(gguf.header(file)));
                let build = || gguf.tokenizer(file);
                // The header is mapped. If it was written since, the key may be of other bytes.
                let is_of_key = || checkpoint.check_unwritten().is_ok();
                self.get_or_build(key, build, is_of_key)?.named(&file.label)
            }
        };
        tokenizer.check_fits(checkpoint.architecture.vocab_size)?;
        Ok(tokenizer)
    }

    /// The tokenizer that comes with a checkpoint whose weights are not here.
    ///
    /// # Errors
    /// As for [`Checkpoint::tokenizer`].
    pub fn of_preview(&self, preview: &Preview) -> Result<TextTokenizer, CheckpointError> {
        let tokenizer = self.of_directory(&preview.directory)?;
        tokenizer.check_fits(preview.architecture.vocab_size)?;
        Ok(tokenizer)
    }

    fn of_directory(&self, directory: &Directory) -> Result<TextTokenizer, CheckpointError> {
        let files = TokenizerFiles::read(directory)?;
        // Built of what the key is of, whatever becomes of the files.
        let build = || hf_tokenizer::load(&files);
        let tokenizer = self.get_or_build(files.digest(), build, || true)?;
        Ok(tokenizer.named(&files.label()))
    }

    /// The tokenizer of a key, built if it is not kept; and kept if `is_of_key` afterwards.
    fn get_or_build(
        &self,
        key: String,
        build: impl FnOnce() -> Result<TextTokenizer, CheckpointError>,
        is_of_key: impl FnOnce() -> bool,
    ) -> Result<TextTokenizer, CheckpointError> {
        let mut kept = self.kept();
        let found = kept.iter().position(|(of, _)| *of == key);
        if let Some(entry) = found.and_then(|index| kept.remove(index)) {
            let tokenizer = entry.1.clone();
            kept.push_front(entry);
            return Ok(tokenizer);
        }
        drop(kept);
        let tokenizer = build()?;
        if is_of_key() {
            let mut kept = self.kept();
            kept.push_front((key, tokenizer.clone()));
            kept.truncate(KEPT);
        }
        Ok(tokenizer)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(String, TextTokenizer)>> {
        // What is kept is whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
