//! The token file: the ids of a dataset's documents, and what is known of each.
//!
//! Little endian, in this order, so that it is written in one pass:
//!
//! | bytes | what |
//! |---|---|
//! | 4 per token | the ids of all documents, one after the other |
//! | 0 or 4 | padding to a multiple of 8 |
//! | 24 per document | one past its last token, its bytes, its words |
//! | 24 | magic with format version, documents, tokens |
//! | 32 | digest of the tokens, see [`TokenStore::tokens_digest`] |
//! | 32 | SHA-256 of everything before |

use std::fmt::Write as _;
use std::path::Path;

use assay_scoring::DocumentFacts;
use sha2::{Digest, Sha256};

use crate::map::Map;

/// Names the format and its version; changes with the layout.
pub(crate) const MAGIC: &[u8; 8] = b"assaytk1";
pub(crate) const ID: usize = 4;
const RECORD: usize = 24;
const DIGEST: usize = 32;
const TRAILER: usize = 24 + 2 * DIGEST;

/// The token ids of a dataset, mapped from the token cache.
#[derive(Debug)]
pub struct TokenStore {
    map: Map,
    documents: usize,
    /// Where the records of the documents start.
    records: usize,
    tokens_digest: String,
    data_digest: String,
}

impl TokenStore {
    /// Opens a token file; none if it is missing, cut short or damaged.
    pub(crate) fn open(path: &Path, data_digest: &str) -> Option<Self> {
        let map = Map::open(path).ok()?;
        let (content, checksum) = map.split_last_chunk::<DIGEST>()?;
        let (body, trailer) = content.split_at_checked(map.len().checked_sub(TRAILER)?)?;
        let (numbers, tokens_digest) = trailer.split_at(24);
        // Checked arithmetic: numbers of another format may be anything.
        let documents = usize::try_from(u64_at(numbers, 8)).ok()?;
        let tokens = usize::try_from(u64_at(numbers, 16)).ok()?;
        let records = tokens.checked_mul(ID)?.checked_next_multiple_of(8)?;
        let length = documents.checked_mul(RECORD)?.checked_add(records)?;
        let whole = numbers.starts_with(MAGIC)
            && body.len() == length
            && Sha256::digest(content)[..] == checksum[..];
        let tokens_digest = digest_text(tokens_digest);
        let data_digest = data_digest.to_owned();
        whole.then_some(Self {
            map,
            documents,
            records,
            tokens_digest,
            data_digest,
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
        self.map
            .numbers(index(self.start(document))..index(self.record(document, 0)))
    }

    /// Tokens, bytes and words of a document.
    ///
    /// # Panics
    /// If there is no such document.
    pub fn facts(&self, document: u64) -> DocumentFacts {
        DocumentFacts {
            tokens: self.record(document, 0) - self.start(document),
            bytes: self.record(document, 1),
            words: self.record(document, 2),
        }
    }

    /// `sha256:` of the token stream: for each document its number of tokens as 64 bits, then its
    /// ids as 32 bits each, little endian.
    pub fn tokens_digest(&self) -> &str {
        &self.tokens_digest
    }

    /// `sha256:` of the dataset's file.
    pub fn data_digest(&self) -> &str {
        &self.data_digest
    }

    /// Index of the first token of a document among those of all.
    fn start(&self, document: u64) -> u64 {
        if document == 0 {
            0
        } else {
            self.record(document - 1, 0)
        }
    }

    fn record(&self, document: u64, field: usize) -> u64 {
        let documents = self.documents;
        assert!(
            document < documents as u64,
            "document {document} of {documents}"
        );
        u64_at(
            &self.map,
            self.records + index(document) * RECORD + 8 * field,
        )
    }
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
    digest
        .iter()
        .fold(String::from("sha256:"), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string succeeds");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::StoreWriter;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            documents in prop::collection::vec(
                (prop::collection::vec(any::<u32>(), 0..20), any::<u64>(), any::<u64>()), 0..20,
            ),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("tokens");
            let mut writer = StoreWriter::new(dir.path()).unwrap();
            for (ids, bytes, words) in &documents {
                writer.push(ids, *bytes, *words).unwrap();
            }
            writer.finish(&path).unwrap();

            let store = TokenStore::open(&path, "sha256:00").unwrap();
            prop_assert_eq!(store.documents(), documents.len() as u64);
            for (document, (ids, bytes, words)) in (0..).zip(&documents) {
                prop_assert_eq!(store.ids(document), ids);
                let tokens = ids.len() as u64;
                let facts = DocumentFacts { tokens, bytes: *bytes, words: *words };
                prop_assert_eq!(store.facts(document), facts);
            }
            prop_assert_eq!(store.data_digest(), "sha256:00");
        }
    }

    /// The checksum must hold before the numbers are believed, and numbers that cannot be are
    /// refused even with a checksum that holds.
    #[test]
    fn impossible_numbers_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        for (documents, tokens) in [(u64::MAX, 0), (0, u64::MAX), (1, 0), (0, 2)] {
            let mut content = MAGIC.to_vec();
            content.extend(u64::to_le_bytes(documents));
            content.extend(u64::to_le_bytes(tokens));
            content.extend([0; DIGEST]);
            content.extend(Sha256::digest(&content));
            std::fs::write(&path, content).unwrap();
            assert!(
                TokenStore::open(&path, "").is_none(),
                "{documents} {tokens}"
            );
        }
    }
}
