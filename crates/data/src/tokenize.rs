//! From a dataset to its token ids, through the cache.

use std::path::{Path, PathBuf};
use std::{fs, io};

use assay_api::DatasetFormat;
use assay_checkpoint::{DigestCache, TextTokenizer};
use assay_scoring::count_words;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::documents::{documents, file_name, unreadable};
use crate::error::DataError;
use crate::memory;
use crate::store::{MAGIC, TokenStore, digest_text};
use crate::writer::StoreWriter;

/// The version of the `tokenizers` library, whose changes may move token ids.
const TOKENIZERS_VERSION: &str = "0.23.2";

/// Text that is tokenized at once: enough to keep every core busy, little against memory.
const BATCH_BYTES: usize = 4 << 20;
/// Documents that are tokenized at once, however short.
const BATCH_DOCUMENTS: usize = 8192;

/// A dataset file and the part of it that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetSource {
    /// The file.
    pub path: PathBuf,
    /// How it is cut into documents.
    pub format: DatasetFormat,
    /// The field of a JSON line that holds the text.
    pub field: String,
    /// Take this many documents at most, from the start.
    pub limit_documents: Option<u64>,
    /// Take whole documents while their tokens stay within this many, and always
    /// the first that has some.
    pub limit_tokens: Option<u64>,
}

/// What token ids follow from; its digest names the cached file.
#[derive(Serialize)]
struct CacheKey<'a> {
    layout: &'a [u8],
    tokenizers: &'a str,
    tokenizer: &'a str,
    data: &'a str,
    format: DatasetFormat,
    field: &'a str,
    limit_documents: Option<u64>,
    limit_tokens: Option<u64>,
}

/// The token ids of a dataset, from the cache in `cache_dir` or else built there.
///
/// A cached file that is cut short or damaged is built again. Several processes may share a
/// cache. Text after the limits is not looked at, so faults in it do not show.
///
/// # Errors
/// See [`DataError`]; nothing is cached then.
pub fn tokenize(
    source: &DatasetSource,
    tokenizer: &TextTokenizer,
    cache_dir: &Path,
    digests: &DigestCache,
) -> Result<TokenStore, DataError> {
    let data_digest = digest_of(source, digests)?;
    let path = cache_dir.join(cached_name(source, tokenizer, &data_digest));
    if let Some(store) = TokenStore::open(&path, &data_digest) {
        return Ok(store);
    }
    let tokens = write_tokens(source, tokenizer, cache_dir)?;
    if digest_of(source, digests)? != data_digest {
        return Err(DataError::Changed {
            file: file_name(&source.path),
        });
    }
    tokens.finish(&path).map_err(DataError::Cache)?;
    TokenStore::open(&path, &data_digest)
        .ok_or_else(|| DataError::Cache(io::Error::other("what was written reads back damaged")))
}

fn digest_of(source: &DatasetSource, digests: &DigestCache) -> Result<String, DataError> {
    // Opening a pipe would wait for a writer that may never come.
    let hex = match fs::metadata(&source.path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::other("it is not a regular file")),
        Ok(_) => digests.file(&source.path),
        Err(error) => Err(error),
    };
    let hex = hex.map_err(|e| unreadable(&source.path, e))?;
    Ok(format!("sha256:{hex}"))
}

fn cached_name(source: &DatasetSource, tokenizer: &TextTokenizer, data_digest: &str) -> String {
    let key = CacheKey {
        layout: MAGIC,
        tokenizers: TOKENIZERS_VERSION,
        tokenizer: tokenizer.digest(),
        data: data_digest,
        format: source.format,
        field: &source.field,
        limit_documents: source.limit_documents,
        limit_tokens: source.limit_tokens,
    };
    let key = serde_json::to_vec(&key).expect("a struct of strings and numbers");
    let digest = digest_text(&Sha256::digest(key));
    format!("{}.tokens", digest.trim_start_matches("sha256:"))
}

/// Tokenizes up to the limits, a batch at a time.
fn write_tokens(
    source: &DatasetSource,
    tokenizer: &TextTokenizer,
    cache_dir: &Path,
) -> Result<StoreWriter, DataError> {
    let mut writer = StoreWriter::new(cache_dir).map_err(DataError::Cache)?;
    let limit_documents = source.limit_documents.unwrap_or(u64::MAX);
    let limit_tokens = source.limit_tokens.unwrap_or(u64::MAX);
    let mut documents =
        documents(source).take(usize::try_from(limit_documents).unwrap_or(usize::MAX));

    'batches: while writer.tokens() < limit_tokens {
        let (batch, end) = next_batch(&mut documents);
        let texts: Vec<&str> = batch.iter().map(String::as_str).collect();
        let bytes = texts.iter().map(|text| text.len() as u64).sum();
        memory::check(&file_name(&source.path), bytes)?;
        for (text, ids) in texts.iter().zip(tokenizer.encode_batch(&texts)?) {
            let tokens = writer.tokens() + ids.len() as u64;
            let is_full = writer.tokens() >= limit_tokens;
            if is_full || (tokens > limit_tokens && writer.tokens() > 0) {
                break 'batches;
            }
            writer
                .push(&ids, text.len() as u64, count_words(text))
                .map_err(DataError::Cache)?;
        }
        match end {
            // A fault behind the limit is not looked at.
            End::Fault(error) if writer.tokens() < limit_tokens => return Err(error),
            End::Fault(_) | End::Dataset => break,
            End::Batch => {}
        }
    }
    let file = || file_name(&source.path);
    match (writer.documents(), writer.tokens()) {
        (0, _) => Err(DataError::Empty { file: file() }),
        (documents, 0) => Err(DataError::NothingToScore {
            file: file(),
            documents,
        }),
        _ => Ok(writer),
    }
}

/// Why a batch holds no more documents.
enum End {
    Batch,
    Dataset,
    Fault(DataError),
}

fn next_batch(
    documents: &mut impl Iterator<Item = Result<String, DataError>>,
) -> (Vec<String>, End) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while bytes < BATCH_BYTES && batch.len() < BATCH_DOCUMENTS {
        match documents.next() {
            Some(Ok(text)) => {
                bytes += text.len();
                batch.push(text);
            }
            Some(Err(error)) => return (batch, End::Fault(error)),
            None => return (batch, End::Dataset),
        }
    }
    (batch, End::Batch)
}

#[cfg(test)]
mod tests {
    use super::TOKENIZERS_VERSION;

    #[test]
    fn the_cache_names_the_locked_tokenizers() {
        let lock = include_str!("../../../Cargo.lock");
        let entry = format!("name = \"tokenizers\"\nversion = \"{TOKENIZERS_VERSION}\"");
        assert!(
            lock.contains(&entry),
            "Cargo.lock has another version; follow it"
        );
    }
}
