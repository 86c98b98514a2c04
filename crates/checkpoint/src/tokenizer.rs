//! Text to token ids.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{Encoding, ModelWrapper, PostProcessorWrapper, Tokenizer};

use crate::CheckpointError;
use crate::growth::{MOST, growth};

/// A token's id, and the bytes of the text that it stands for.
pub type TokenBytes = (u32, Range<usize>);

/// A tokenizer as the checkpoint has it, with truncation and padding switched off.
#[derive(Debug, Clone)]
pub struct TextTokenizer {
    /// The file it came from, in errors.
    file: String,
    /// Shared by clones.
    inner: Arc<Tokenizer>,
    digest: String,
    special: SpecialTokens,
    adds_bos: bool,
    largest: u32,
}

/// The ids that the tokenizer's own files name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpecialTokens {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
}

impl TextTokenizer {
    pub(crate) fn new(
        file: &str,
        mut inner: Tokenizer,
        digest: &str,
        special: SpecialTokens,
    ) -> Result<Self, CheckpointError> {
        let unusable =
            |error: tokenizers::Error| CheckpointError::tokenizer(file, error.to_string());
        if let ModelWrapper::BPE(model) = inner.get_model()
            && let Some(dropout) = model.dropout.filter(|dropout| *dropout > 0.0)
        {
            let detail = format!(
                "it has a dropout of {dropout}, by which one text gives other tokens each time; \
                 set `dropout` to null"
            );
            return Err(CheckpointError::tokenizer(file, detail));
        }
        let growth = growth(&inner);
        if growth > MOST {
            let detail = format!(
                "its normalizer and pre-tokenizer may make a text {growth} times as long, {MOST} \
                 are the most; save a tokenizer with fewer steps"
            );
            return Err(CheckpointError::tokenizer(file, detail));
        }
        inner.with_truncation(None).map_err(unusable)?;
        inner.with_padding(None);
        let largest = inner.get_vocab(true).into_values().max().ok_or_else(|| {
            CheckpointError::tokenizer(file, "the tokenizer has no tokens; give a complete one")
        })?;
        // What the post-processor does is asked of it, not of the flags beside it, which it may
        // not follow.
        let empty = without_panic(|| inner.encode_fast("", true)).map_err(unusable)?;
        let adds_bos = special.bos.is_some() && empty.get_ids().first().copied() == special.bos;
        // It has said all that is asked of it. Byte-level ones cut spaces off the offsets of tokens.
        inner.with_post_processor(None::<PostProcessorWrapper>);
        Ok(Self {
            file: file.to_owned(),
            inner: Arc::new(inner),
            digest: format!("sha256:{digest}"),
            special,
            adds_bos,
            largest,
        })
    }

    /// The same tokenizer from another file.
    pub(crate) fn named(self, file: &str) -> Self {
        Self {
            file: file.to_owned(),
            ..self
        }
    }

    pub(crate) fn check_fits(&self, rows: usize) -> Result<(), CheckpointError> {
        if (self.largest as usize) < rows {
            return Ok(());
        }
        Err(CheckpointError::TokenizerTooLarge {
            file: self.file.clone(),
            largest: self.largest,
            rows,
        })
    }

    /// Ids of a text, without the special tokens the tokenizer would add.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, CheckpointError> {
        let encoding = without_panic(|| self.inner.encode_fast(text, false))
            .map_err(|error| self.refused(&error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Ids of several texts, computed on all cores; the same as [`TextTokenizer::encode`] of each.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of a text.
    pub fn encode_batch(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>, CheckpointError> {
        let encodings = without_panic(|| self.inner.encode_batch_fast(texts.to_vec(), false))
            .map_err(|error| self.refused(&error))?;
        Ok(encodings
            .iter()
            .map(|encoding| encoding.get_ids().to_vec())
            .collect())
    }

    /// Ids of a text as of [`TextTokenizer::encode`], each with the bytes of the text it stands for.
    ///
    /// A token that is a part of a character has the bytes of the whole of it, and so have the
    /// tokens of its other parts.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of the text.
    pub fn encode_with_offsets(&self, text: &str) -> Result<Vec<TokenBytes>, CheckpointError> {
        let encoding = without_panic(|| self.inner.encode(text, false))
            .map_err(|error| self.refused(&error))?;
        Ok(with_offsets(&encoding))
    }

    /// Ids and bytes of several texts, computed on all cores; the same as
    /// [`TextTokenizer::encode_with_offsets`] of each.
    ///
    /// # Errors
    /// The tokenizer has no token for a part of a text.
    pub fn encode_batch_with_offsets(
        &self,
        texts: &[&str],
    ) -> Result<Vec<Vec<TokenBytes>>, CheckpointError> {
        let encodings = without_panic(|| self.inner.encode_batch(texts.to_vec(), false))
            .map_err(|error| self.refused(&error))?;
        Ok(encodings.iter().map(with_offsets).collect())
    }

    /// `sha256:` and the digest of the tokenizer: tokenizer.json (GGUF: the metadata that defines
    /// it) and the BOS and EOS ids.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether the post-processor puts a BOS in front of a text.
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// The BOS token's id, if the tokenizer names one.
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// The EOS token's id, if the tokenizer names one.
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// The token that rolling puts in front of a document: BOS, else EOS.
    ///
    /// # Errors
    /// The tokenizer names neither.
    pub fn prefix(&self) -> Result<u32, CheckpointError> {
        let prefix = self.special.bos.or(self.special.eos);
        prefix.ok_or_else(|| CheckpointError::NoPrefixToken {
            file: self.file.clone(),
        })
    }

    /// Largest id and one.
    pub fn vocab_size(&self) -> usize {
        self.largest as usize + 1
    }

    /// The text of a token.
    pub(crate) fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The kind of its model, such as `BPE`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.inner.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::Unigram(_) => "Unigram",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::WordPiece(_) => "WordPiece",
        }
    }

    fn refused(&self, error: &tokenizers::Error) -> CheckpointError {
        CheckpointError::tokenizer(
            &self.file,
            format!("the text cannot be tokenized ({error})"),
        )
    }
}

/// What puts a BOS in front and an EOS behind, each with its id; nothing if there is neither.
pub(crate) fn bos_and_eos(
    bos: Option<(String, u32)>,
    eos: Option<(String, u32)>,
) -> tokenizers::Result<Option<TemplateProcessing>> {
    let text = |token: &Option<(String, u32)>| token.as_ref().map(|(text, _)| text.clone());
    let single: Vec<String> = text(&bos)
        .into_iter()
        .chain(["$A".to_owned()])
        .chain(text(&eos))
        .collect();
    let named: Vec<(String, u32)> = bos.into_iter().chain(eos).collect();
    if named.is_empty() {
        return Ok(None);
    }
    let template = TemplateProcessing::builder()
        .try_single(single)
        .map_err(tokenizers::Error::from)?
        .special_tokens(named)
        .build()?;
    Ok(Some(template))
}

fn with_offsets(encoding: &Encoding) -> Vec<TokenBytes> {
    let offsets = encoding.get_offsets().iter();
    encoding
        .get_ids()
        .iter()
        .zip(offsets)
        .map(|(id, (start, end))| (*id, *start..*end))
        .collect()
}

/// The tokenizers crate panics at some texts with some tokenizers, such as a normalizer that
/// replaces the empty string. That is the tokenizer's fault, and every attempt would meet it.
fn without_panic<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> tokenizers::Result<T> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err("its parts contradict each other".into()))
}
