//! The token file: the ids of a dataset's documents, and what is known of each.
//!
//! Little endian, in this order, so that it is written in one pass; each part is padded to a
//! multiple of 8 bytes:
//!
//! | bytes | what |
//! |---|---|
//! | 4 per token | the ids of all documents, one after the other |
//! | 8 per token | if flagged: the bytes of its document's text, from and to |
//! | 1 bit per token | if flagged: whether it counts |
//! | 24 per document | one past its last token, its bytes, its words |
//! | 4 per document | if flagged: its group |
//! | as many as they are | if flagged: the names of the groups, as JSON |
//! | 40 | magic with format version, documents, tokens, flags, bytes of the names |
//! | 32 | digest of the tokens, see [`TokenStore::tokens_digest`] |
//! | 32 | SHA-256 of everything before |

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use assay_scoring::DocumentFacts;
use sha2::{Digest, Sha256};

use crate::map::Map;

/// Names the format and its version; changes with the layout.
pub(crate) const MAGIC: &[u8; 8] = b"assaytk2";
/// Flag: there is a mask.
pub(crate) const MASK: u64 = 1;
/// Flag: there are offsets.
pub(crate) const OFFSETS: u64 = 2;
/// Flag: there are groups.
pub(crate) const GROUPS: u64 = 4;
/// Flag: the documents were tokenized as one text.
pub(crate) const JOINED: u64 = 8;
pub(crate) const ID: usize = 4;
const OFFSET: usize = 8;
const RECORD: usize = 24;
const GROUP: usize = 4;
const DIGEST: usize = 32;
const NUMBERS: usize = 40;
const TRAILER: usize = NUMBERS + 2 * DIGEST;

/// Joined text beyond this many bytes is worth a warning.
const LARGE_TEXT: u64 = 64_000_000;

/// The token ids of a dataset, mapped from the token cache.
#[derive(Debug)]
pub struct TokenStore {
    map: Map,
    documents: usize,
    tokens: usize,
    /// Where the parts start, those that there are.
    offsets: Option<usize>,
    mask: Option<usize>,
    records: usize,
    groups: Option<usize>,
    group_names: Vec<String>,
    is_joined: bool,
    tokens_digest: String,
    data_digest: String,
    key: String,
}

impl TokenStore {
    /// Opens a token file; none if it is missing, cut short or damaged.
    pub(crate) fn open(path: &Path, data_digest: &str, key: &str) -> Option<Self> {
        let map = Map::open(path).ok()?;
        let (content, checksum) = map.split_last_chunk::<DIGEST>()?;
        let (body, trailer) = content.split_at_checked(map.len().checked_sub(TRAILER)?)?;
        let (numbers, tokens_digest) = trailer.split_at(NUMBERS);
        let flags = u64_at(numbers, 24);
        // Checked arithmetic: numbers of another format may be anything.
        let number = |at| usize::try_from(u64_at(numbers, at)).ok();
        let (documents, tokens, names) = (number(8)?, number(16)?, number(32)?);
        let mut parts = Parts(0);
        parts.next(tokens, ID)?;
        let offsets = parts.next_if(flags & OFFSETS != 0, tokens, OFFSET)?;
        let mask = parts.next_if(flags & MASK != 0, tokens.div_ceil(64), 8)?;
        let records = parts.next(documents, RECORD)?;
        let groups = parts.next_if(flags & GROUPS != 0, documents, GROUP)?;
        let names = parts.next(names, 1)?..parts.0;
        let whole = numbers.starts_with(MAGIC)
            && body.len() == parts.0
            && Sha256::digest(content)[..] == checksum[..];
        if !whole {
            return None;
        }
        let group_names = match groups {
            Some(_) => serde_json::from_slice(&body[names]).ok()?,
            None => Vec::new(),
        };
        let tokens_digest = digest_text(tokens_digest);
        Some(Self {
            map,
            documents,
            tokens,
            offsets,
            mask,
            records,
            groups,
            group_names,
            is_joined: flags & JOINED != 0,
            tokens_digest,
            data_digest: data_digest.to_owned(),
            key: key.to_owned(),
        })
    }

    /// Number of documents, those without a token included.
    pub fn documents(&self) -> u64 {
        self.documents as u64
    }

    /// The token ids of a document, without special tokens.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn ids(&self, document: u64) -> &[u32] {
        let tokens = self.tokens_of(document);
        self.map.numbers(index(tokens.start)..index(tokens.end))
    }

    /// The token ids of all documents, one after the other.
    pub fn stream(&self) -> &[u32] {
        self.map.numbers(0..self.tokens)
    }

    /// Tokens, bytes and words of a document.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn facts(&self, document: u64) -> DocumentFacts {
        let tokens = self.tokens_of(document);
        DocumentFacts {
            tokens: tokens.end - tokens.start,
            bytes: self.record(document, 1),
            words: self.record(document, 2),
        }
    }

    /// Index in the stream of the first token of a document.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn start(&self, document: u64) -> u64 {
        self.tokens_of(document).start
    }

    /// The document that a token of the stream belongs to.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn owner(&self, stream_index: u64) -> u64 {
        self.check_token(stream_index);
        let (mut from, mut to) = (0, self.documents());
        while from < to {
            let middle = u64::midpoint(from, to);
            if self.record(middle, 0) <= stream_index {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from
    }

    /// Whether only some tokens count.
    pub fn has_mask(&self) -> bool {
        self.mask.is_some()
    }

    /// Whether a token of the stream counts.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn is_counted(&self, stream_index: u64) -> bool {
        self.check_token(stream_index);
        self.mask.is_none_or(|mask| {
            let word = u64_at(&self.map, mask + 8 * index(stream_index / 64));
            word >> (stream_index % 64) & 1 == 1
        })
    }

    /// The tokens of a document that count, as sorted, disjoint ranges that do not touch, from its
    /// first token on; none if all count.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn counted(&self, document: u64) -> Option<Vec<Range<u64>>> {
        let tokens = self.tokens_of(document);
        self.has_mask()
            .then(|| ranges(tokens.map(|token| self.is_counted(token))))
    }

    /// Whether the bytes of each token are known.
    pub fn has_offsets(&self) -> bool {
        self.offsets.is_some()
    }

    /// The bytes that a token of the stream has of its document's text; none if offsets were not
    /// asked for. In joined text, what a token has of a separator or of the next document is left
    /// out. A token that is a part of a character has the whole of it.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn offsets(&self, stream_index: u64) -> Option<Range<u64>> {
        self.check_token(stream_index);
        let at = (self.offsets? + OFFSET * index(stream_index)) / ID;
        let &[from, to] = self.map.numbers(at..at + 2) else {
            return None;
        };
        Some(u64::from(from)..u64::from(to))
    }

    /// The names of the groups in their order; none if the dataset is not grouped.
    pub fn group_names(&self) -> &[String] {
        &self.group_names
    }

    /// Index of a document's group among the names; none if the dataset is not grouped.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn group(&self, document: u64) -> Option<u32> {
        self.check_document(document);
        let at = self.groups? / ID + index(document);
        self.map.numbers(at..at + 1).first().copied()
    }

    /// `sha256:` of the token stream: for each document its number of tokens as 64 bits, then its
    /// ids as 32 bits each, little endian. Where only some count: the bytes of `mask` before it
    /// all, and behind each document's ids the number of its counted ranges, and each one's first
    /// token and one past its last, as 64 bits.
    pub fn tokens_digest(&self) -> &str {
        &self.tokens_digest
    }

    /// `sha256:` of the dataset: of its file's bytes; of several files, of their digests in
    /// hexadecimal in the order of their names, a line each; of inline documents, of their JSON
    /// without spaces and with sorted keys.
    pub fn data_digest(&self) -> &str {
        &self.data_digest
    }

    /// SHA-256 in hexadecimal over everything that the tokens, the mask and the groups follow
    /// from: data, tokenizer, chat template and options. Equal keys, equal tokens. Whether offsets
    /// are kept is no part of it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What a user should know about how the tokens came to be.
    pub fn warnings(&self) -> Vec<String> {
        let bytes: u64 = (0..self.documents()).map(|d| self.record(d, 1)).sum();
        if !self.is_joined || bytes <= LARGE_TEXT {
            return Vec::new();
        }
        vec![format!(
            "the documents were joined to one text of {} MB and tokenized whole, which takes \
             much memory on every worker; `limit_documents` or a sample makes it shorter",
            bytes / 1_000_000
        )]
    }

    /// The tokens of a document, by their indices in the stream.
    fn tokens_of(&self, document: u64) -> Range<u64> {
        let start = match document {
            0 => 0,
            _ => self.record(document - 1, 0),
        };
        start..self.record(document, 0)
    }

    fn record(&self, document: u64, field: usize) -> u64 {
        self.check_document(document);
        u64_at(
            &self.map,
            self.records + index(document) * RECORD + 8 * field,
        )
    }

    fn check_document(&self, document: u64) {
        let documents = self.documents;
        assert!(
            document < documents as u64,
            "document {document} of {documents}"
        );
    }

    fn check_token(&self, stream_index: u64) {
        let tokens = self.tokens;
        assert!(
            stream_index < tokens as u64,
            "token {stream_index} of {tokens}"
        );
    }
}

/// Where the parts of a file begin, one after the other.
struct Parts(usize);

impl Parts {
    fn next(&mut self, items: usize, size: usize) -> Option<usize> {
        let start = self.0;
        let length = items.checked_mul(size)?.checked_next_multiple_of(8)?;
        self.0 = start.checked_add(length)?;
        Some(start)
    }

    #[expect(
        clippy::option_option,
        reason = "none: too large; a part that is not there: none"
    )]
    fn next_if(&mut self, is_there: bool, items: usize, size: usize) -> Option<Option<usize>> {
        if is_there {
            self.next(items, size).map(Some)
        } else {
            Some(None)
        }
    }
}

/// The runs of `true`, by their positions.
pub(crate) fn ranges(flags: impl Iterator<Item = bool>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (at, _) in (0..).zip(flags).filter(|(_, flag)| *flag) {
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

/// A number that lies inside a file that is mapped.
fn index(number: u64) -> usize {
    usize::try_from(number).expect("what is mapped is addressable")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// `sha256:` and the digest in hexadecimal.
pub(crate) fn digest_text(digest: &[u8]) -> String {
    format!("sha256:{}", hex(digest))
}

/// A digest in hexadecimal.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Tokens, Wants};
    use crate::writer::{Facts, Sections, StoreWriter};
    use proptest::prelude::*;

    type Token = (u32, bool, Range<usize>);

    fn token() -> impl Strategy<Value = Token> {
        (any::<u32>(), any::<bool>(), 0..1000_usize, 0..1000_usize)
            .prop_map(|(id, counted, from, length)| (id, counted, from..from + length))
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            documents in prop::collection::vec(
                (prop::collection::vec(token(), 0..90), any::<u64>(), any::<u64>(), 0..3_u32),
                0..20,
            ),
            offsets: bool,
            counted: bool,
            groups: bool,
            joined: bool,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tokens");
            let sections = Sections { wants: Wants { offsets, counted }, groups, joined };
            let mut writer = StoreWriter::new(dir.path(), sections).unwrap();
            for (tokens, bytes, words, group) in &documents {
                let tokens = Tokens {
                    ids: tokens.iter().map(|token| token.0).collect(),
                    offsets: offsets.then(|| tokens.iter().map(|token| token.2.clone()).collect()),
                    counted: counted.then(|| tokens.iter().map(|token| token.1).collect()),
                };
                let facts = Facts { bytes: *bytes, words: *words, group: *group };
                writer.push(&tokens, facts).unwrap();
            }
            // Number 2 is first by name, 0 second, 1 third.
            let names = [("a".to_owned(), 2), ("b".to_owned(), 0), ("c\"".to_owned(), 1)];
            writer.finish(&path, &names).unwrap();
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

            let store = TokenStore::open(&path, "sha256:00", "key").unwrap();
            prop_assert_eq!(store.documents(), documents.len() as u64);
            prop_assert_eq!(store.has_mask(), counted);
            prop_assert_eq!(store.has_offsets(), offsets);
            let mut at = 0;
            for (document, (tokens, bytes, words, group)) in (0..).zip(&documents) {
                let ids: Vec<u32> = tokens.iter().map(|token| token.0).collect();
                prop_assert_eq!(store.ids(document), &ids);
                let facts = DocumentFacts { tokens: ids.len() as u64, bytes: *bytes, words: *words };
                prop_assert_eq!(store.facts(document), facts);
                prop_assert_eq!(store.start(document), at);
                let mut flags = vec![false; tokens.len()];
                for range in store.counted(document).unwrap_or_default() {
                    prop_assert!(range.start < range.end);
                    flags[index(range.start)..index(range.end)].fill(true);
                }
                for (token, flag) in tokens.iter().zip(flags) {
                    prop_assert_eq!(store.stream()[index(at)], token.0);
                    prop_assert_eq!(store.owner(at), document);
                    prop_assert_eq!(store.is_counted(at), token.1 || !counted);
                    prop_assert_eq!(flag, token.1 && counted);
                    let expected = token.2.start as u64..token.2.end as u64;
                    prop_assert_eq!(store.offsets(at), offsets.then_some(expected));
                    at += 1;
                }
                let place = [1, 2, 0][*group as usize];
                prop_assert_eq!(store.group(document), groups.then_some(place));
            }
            prop_assert_eq!(store.stream().len() as u64, at);
            prop_assert_eq!(store.group_names().len(), if groups { 3 } else { 0 });
            prop_assert_eq!((store.data_digest(), store.key()), ("sha256:00", "key"));
        }
    }

    /// The checksum must hold before the numbers are believed, and numbers that cannot be are
    /// refused even with a checksum that holds.
    #[test]
    fn impossible_numbers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        for (documents, tokens, flags, names) in [
            (u64::MAX, 0, 0, 0),
            (0, u64::MAX, 0, 0),
            (0, u64::MAX, MASK, 0),
            (0, 0, 0, u64::MAX),
            (1, 0, 0, 0),
            (0, 2, 0, 0),
            (0, 0, GROUPS, 0),
        ] {
            let mut content = MAGIC.to_vec();
            for number in [documents, tokens, flags, names] {
                content.extend(u64::to_le_bytes(number));
            }
            content.extend([0; DIGEST]);
            content.extend(Sha256::digest(&content));
            std::fs::write(&path, content).unwrap();
            assert!(
                TokenStore::open(&path, "", "").is_none(),
                "{documents} {tokens} {flags} {names}"
            );
        }
    }
}
