//! The documents that are taken of a dataset, with their tokens.

use assay_checkpoint::{ChatTemplate, TextTokenizer};

use crate::batch::{self, End};
use crate::documents::{Document, Documents};
use crate::encode::{Tokens, Wants, encode};
use crate::error::DataError;
use crate::memory;
use crate::source::Source;

/// The documents within the sample and the limits, a batch at a time.
pub(crate) struct Taken<'a> {
    source: &'a Source,
    tokenizer: Option<&'a TextTokenizer>,
    wants: Wants,
    documents: Documents<'a>,
    /// Tokens so far.
    tokens: u64,
    ended: bool,
}

impl<'a> Taken<'a> {
    /// Opens a dataset. Without a tokenizer, documents have no tokens, and there cannot be a limit
    /// of them.
    pub(crate) fn open(
        source: &'a Source,
        tokenizer: Option<&'a TextTokenizer>,
        chat: Option<&'a ChatTemplate>,
        wants: Wants,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, DataError> {
        if tokenizer.is_none() && source.limit_tokens.is_some() {
            return Err(DataError::NoTokenizer);
        }
        Ok(Self {
            source,
            tokenizer,
            wants,
            documents: Documents::open(source, chat, cancelled)?,
            tokens: 0,
            ended: false,
        })
    }

    /// The next documents; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<(Document, Tokens)>>, DataError> {
        let limit = self.source.limit_tokens.unwrap_or(u64::MAX);
        if self.ended || self.tokens >= limit {
            return Ok(None);
        }
        let (documents, end) = batch::next(&mut self.documents);
        let tokens = match self.tokenizer {
            Some(tokenizer) => {
                let bytes = documents.iter().map(|d| d.text.len() as u64).sum();
                memory::check(&self.source.label(), bytes, memory::CUT)?;
                encode(tokenizer, &documents, self.wants)?
            }
            None => vec![Tokens::default(); documents.len()],
        };
        let mut taken = Vec::with_capacity(documents.len());
        for (document, tokens) in documents.into_iter().zip(tokens) {
            let total = self.tokens + tokens.ids.len() as u64;
            if self.tokens >= limit || (total > limit && self.tokens > 0) {
                self.ended = true;
                return Ok(Some(taken));
            }
            self.tokens = total;
            taken.push((document, tokens));
        }
        match end {
            // A fault behind the limit is not looked at.
            End::Fault(error) if self.tokens < limit => return Err(error),
            End::Fault(_) | End::Dataset => self.ended = true,
            End::Batch => {}
        }
        Ok(Some(taken))
    }
}
