//! From a dataset to its token ids, through the cache.

use std::io;
use std::path::Path;

use assay_checkpoint::{ChatTemplate, DigestCache, TextTokenizer};
use assay_scoring::count_words;

use crate::digest::{self, Pinned};
use crate::documents::Document;
use crate::encode::{Tokens, Wants};
use crate::error::DataError;
use crate::groups::Groups;
use crate::joined::Joined;
use crate::memory;
use crate::source::Source;
use crate::store::TokenStore;
use crate::taken::Taken;
use crate::writer::{Facts, Sections, StoreWriter};

/// How a dataset is read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// What makes token ids of text.
    pub tokenizer: &'a TextTokenizer,
    /// What makes text of chat messages; needed for the format `chat` alone.
    pub chat: Option<&'a ChatTemplate>,
    /// The text between two documents, where they are tokenized as one; none: each alone.
    pub join: Option<&'a str>,
    /// Whether to keep which bytes each token stands for.
    pub offsets: bool,
}

/// The token ids of a dataset, from the cache in `cache_dir` or else built there.
///
/// A cached file that is cut short or damaged is built again. Several processes may share a
/// cache. Text after the limits, or outside the sample, is not looked at, so faults in it do not
/// show.
///
/// # Errors
/// See [`DataError`]; nothing is cached then.
pub fn tokenize(
    source: &Source,
    reading: &Reading<'_>,
    cache_dir: &Path,
    digests: &DigestCache,
) -> Result<TokenStore, DataError> {
    tokenize_until(source, reading, cache_dir, digests, &|| false)
}

/// [`tokenize`], asking `cancelled` now and then whether to stop. Joined documents are tokenized
/// in one go, which is not interrupted.
///
/// # Errors
/// See [`DataError`]; nothing is cached then.
pub fn tokenize_until(
    source: &Source,
    reading: &Reading<'_>,
    cache_dir: &Path,
    digests: &DigestCache,
    cancelled: &dyn Fn() -> bool,
) -> Result<TokenStore, DataError> {
    if source.is_masked() && reading.join.is_some() {
        return Err(DataError::MaskedAndJoined {
            file: source.label(),
        });
    }
    let pinned = Pinned::new(source, digests)?;
    let data_digest = &pinned.digest;
    let key = digest::key(source, reading, data_digest);
    let with_offsets = cache_dir.join(format!("{key}.offsets.tokens"));
    let without = cache_dir.join(format!("{key}.tokens"));
    let open = |path: &Path| TokenStore::open(path, data_digest, &key);
    // A file with offsets serves those who need none, too.
    let without_offsets = || open(&without).filter(|_| !reading.offsets);
    let cached = without_offsets().or_else(|| open(&with_offsets));
    if let Some(store) = cached {
        return Ok(store);
    }
    let (writer, groups) = Builder::new(&pinned.source, reading, cache_dir, cancelled)?.build()?;
    pinned.check(digests)?;
    let path = if reading.offsets {
        with_offsets
    } else {
        without
    };
    writer
        .finish(&path, &groups.sorted())
        .map_err(DataError::Cache)?;
    open(&path)
        .ok_or_else(|| DataError::Cache(io::Error::other("what was written reads back damaged")))
}

/// Writes the tokens of a dataset.
struct Builder<'a> {
    source: &'a Source,
    reading: &'a Reading<'a>,
    cancelled: &'a dyn Fn() -> bool,
    wants: Wants,
    writer: StoreWriter,
    groups: Groups,
}

impl<'a> Builder<'a> {
    fn new(
        source: &'a Source,
        reading: &'a Reading<'a>,
        cache_dir: &Path,
        cancelled: &'a dyn Fn() -> bool,
    ) -> Result<Self, DataError> {
        let wants = Wants {
            offsets: reading.offsets,
            counted: source.is_masked(),
        };
        let sections = Sections {
            wants,
            groups: source.group_by.is_some(),
            joined: reading.join.is_some(),
        };
        Ok(Self {
            source,
            reading,
            cancelled,
            wants,
            writer: StoreWriter::new(cache_dir, sections).map_err(DataError::Cache)?,
            groups: Groups::default(),
        })
    }

    fn build(mut self) -> Result<(StoreWriter, Groups), DataError> {
        match self.reading.join {
            None => self.write_each()?,
            Some(join) => self.write_joined(join)?,
        }
        let file = self.source.label();
        let documents = self.writer.documents();
        match (documents, self.writer.tokens(), self.writer.counted()) {
            (0, ..) => Err(DataError::Empty { file }),
            (_, 0, _) => Err(DataError::NothingToScore { file, documents }),
            (_, _, 0) => Err(DataError::NothingCounted { file, documents }),
            _ => Ok((self.writer, self.groups)),
        }
    }

    /// Tokenizes each document alone, a batch at a time.
    fn write_each(&mut self) -> Result<(), DataError> {
        let Reading {
            tokenizer, chat, ..
        } = *self.reading;
        let mut taken = Taken::open(
            self.source,
            Some(tokenizer),
            chat,
            self.wants,
            self.cancelled,
        )?;
        while let Some(batch) = taken.next()? {
            self.go_on()?;
            for (document, tokens) in batch {
                let facts = self.facts(&document)?;
                self.push(&tokens, facts)?;
            }
        }
        Ok(())
    }

    /// Tokenizes the joined documents at once. A limit of tokens counts those that each document
    /// has alone.
    fn write_joined(&mut self, join: &str) -> Result<(), DataError> {
        let Reading {
            tokenizer, chat, ..
        } = *self.reading;
        let file = self.source.label();
        let ids = Wants {
            offsets: false,
            counted: false,
        };
        let counting = self.source.limit_tokens.map(|_| tokenizer);
        let mut taken = Taken::open(self.source, counting, chat, ids, self.cancelled)?;
        let mut joined = Joined::default();
        let mut facts = Vec::new();
        while let Some(batch) = taken.next()? {
            self.go_on()?;
            for (document, _) in batch {
                facts.push(self.facts(&document)?);
                joined.push(&document.text, join);
            }
            memory::check(&file, joined.text.len() as u64, memory::JOIN_LESS)?;
        }
        if joined.documents.is_empty() {
            return Ok(());
        }
        let tokens = tokenizer.encode_with_offsets(&joined.text)?;
        for (tokens, facts) in joined.split(tokens, self.wants).iter().zip(facts) {
            self.push(tokens, facts)?;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), DataError> {
        if (self.cancelled)() {
            return Err(DataError::Cancelled);
        }
        Ok(())
    }

    fn push(&mut self, tokens: &Tokens, facts: Facts) -> Result<(), DataError> {
        self.writer.push(tokens, facts).map_err(DataError::Cache)
    }

    fn facts(&mut self, document: &Document) -> Result<Facts, DataError> {
        let group = match &document.group {
            Some(name) => self.groups.number(name, self.source)?,
            None => 0,
        };
        Ok(Facts {
            bytes: document.text.len() as u64,
            words: count_words(&document.text),
            group,
        })
    }
}
