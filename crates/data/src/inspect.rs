//! A dataset counted, without being kept.

use std::collections::HashSet;
use std::fs;

use assay_api::{DatasetInspection, FileSize, GroupSize, HistogramBin, LengthUnit, Lengths};
use assay_checkpoint::{ChatTemplate, DigestCache, TextTokenizer};
use assay_scoring::count_words;
use sha2::{Digest, Sha256};

use crate::digest::Pinned;
use crate::documents::Document;
use crate::encode::{Tokens, Wants};
use crate::error::DataError;
use crate::groups::Groups;
use crate::reader::unreadable;
use crate::source::Source;
use crate::taken::Taken;

/// Counts a dataset, its sample and its limits applied; its tokens too, each document alone, if
/// there is a tokenizer. `cancelled` is asked now and then whether to stop.
///
/// A dataset without documents, or without a token that counts, is no error here.
///
/// # Errors
/// See [`DataError`].
pub fn inspect(
    source: &Source,
    tokenizer: Option<&TextTokenizer>,
    chat: Option<&ChatTemplate>,
    digests: &DigestCache,
    cancelled: &dyn Fn() -> bool,
) -> Result<DatasetInspection, DataError> {
    let pinned = Pinned::new(source, digests)?;
    let source = &pinned.source;
    let wants = Wants {
        offsets: false,
        counted: tokenizer.is_some() && source.is_masked(),
    };
    let mut taken = Taken::open(source, tokenizer, chat, wants, cancelled)?;
    let mut counts = Counts::default();
    while let Some(batch) = taken.next()? {
        if cancelled() {
            return Err(DataError::Cancelled);
        }
        for (document, tokens) in &batch {
            counts.add(source, document, tokens, tokenizer.is_some())?;
        }
    }
    pinned.check(digests)?;
    counts.inspection(source, pinned.digest.clone(), tokenizer.is_some())
}

#[derive(Default)]
struct Counts {
    empty: u64,
    duplicate: u64,
    bytes: u64,
    words: u64,
    tokens: u64,
    counted: u64,
    /// Of each document.
    lengths: Vec<u64>,
    /// Digests of texts, cut to half: two of 2^40 texts share one with a chance of 2^-49.
    met: HashSet<[u8; 16]>,
    groups: Groups,
    /// Documents of each group.
    grouped: Vec<u64>,
}

impl Counts {
    fn add(
        &mut self,
        source: &Source,
        document: &Document,
        tokens: &Tokens,
        in_tokens: bool,
    ) -> Result<(), DataError> {
        let text = &document.text;
        let count = tokens.ids.len() as u64;
        self.empty += u64::from(text.is_empty());
        let digest: [u8; 32] = Sha256::digest(text).into();
        let half = *digest.first_chunk().expect("half of it");
        self.duplicate += u64::from(!self.met.insert(half));
        self.bytes += text.len() as u64;
        self.words += count_words(text);
        self.tokens += count;
        self.counted += match &tokens.counted {
            Some(counted) => counted.iter().filter(|counted| **counted).count() as u64,
            None => count,
        };
        self.lengths
            .push(if in_tokens { count } else { text.len() as u64 });
        if let Some(name) = &document.group {
            let number = self.groups.number(name, source)? as usize;
            self.grouped.resize(self.grouped.len().max(number + 1), 0);
            self.grouped[number] += 1;
        }
        Ok(())
    }

    fn inspection(
        self,
        source: &Source,
        digest: String,
        in_tokens: bool,
    ) -> Result<DatasetInspection, DataError> {
        let files = source.files().iter().map(|file| {
            let metadata = fs::metadata(&file.path);
            let bytes = metadata.map_err(|e| unreadable(&file.name, e))?.len();
            Ok(FileSize {
                name: file.name.clone(),
                bytes,
            })
        });
        let groups = self.groups.sorted().into_iter();
        let unit = if in_tokens {
            LengthUnit::Tokens
        } else {
            LengthUnit::Bytes
        };
        Ok(DatasetInspection {
            name: source.name().to_owned(),
            format: source.format(),
            digest,
            files: files.collect::<Result<_, DataError>>()?,
            documents: self.lengths.len() as u64,
            empty_documents: self.empty,
            duplicate_documents: self.duplicate,
            bytes: self.bytes,
            words: self.words,
            tokens: in_tokens.then_some(self.tokens),
            counted_tokens: in_tokens.then_some(self.counted),
            lengths: lengths(self.lengths, unit),
            groups: groups
                .map(|(name, number)| GroupSize {
                    name,
                    documents: self.grouped[number as usize],
                })
                .collect(),
        })
    }
}

fn lengths(mut lengths: Vec<u64>, unit: LengthUnit) -> Lengths {
    lengths.sort_unstable();
    let (Some(&min), Some(&max)) = (lengths.first(), lengths.last()) else {
        return Lengths {
            unit,
            ..Lengths::default()
        };
    };
    // Bins 0, 1, 2..4, 4..8 and so on, from that of the shortest to that of the longest.
    let bin = |length: u64| u64::BITS - length.leading_zeros();
    let mut histogram: Vec<HistogramBin> = (bin(min)..=bin(max))
        .map(|bin| HistogramBin {
            from: if bin == 0 { 0 } else { 1 << (bin - 1) },
            to: 1_u64.checked_shl(bin).unwrap_or(u64::MAX),
            documents: 0,
        })
        .collect();
    for length in &lengths {
        histogram[(bin(*length) - bin(min)) as usize].documents += 1;
    }
    Lengths {
        unit,
        min,
        median: lengths[(lengths.len() - 1) / 2],
        max,
        histogram,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_double_and_the_median_is_a_length_that_occurs() {
        let found = lengths(vec![9, 0, 1, 3, 2, 8], LengthUnit::Bytes);
        assert_eq!((found.min, found.median, found.max), (0, 2, 9));
        let bins: Vec<_> = found
            .histogram
            .iter()
            .map(|bin| (bin.from, bin.to, bin.documents))
            .collect();
        assert_eq!(
            bins,
            [(0, 1, 1), (1, 2, 1), (2, 4, 2), (4, 8, 0), (8, 16, 2)]
        );
        let found = lengths(vec![5], LengthUnit::Tokens);
        assert_eq!((found.median, found.histogram.len()), (5, 1));
        assert_eq!(found.histogram[0].from, 4);
        assert_eq!(lengths(vec![], LengthUnit::Bytes), Lengths::default());
        assert_eq!(
            lengths(vec![u64::MAX], LengthUnit::Bytes).histogram[0].to,
            u64::MAX
        );
    }
}
