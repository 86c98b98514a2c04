//! Documents taken together, so that every core has work.

use crate::documents::Document;
use crate::error::DataError;

/// Text that is taken at once: enough to keep every core busy, little against memory.
const BYTES: usize = 4 << 20;
/// Documents that are taken at once, however short.
const DOCUMENTS: usize = 8192;

/// Why a batch holds no more documents.
pub(crate) enum End {
    Batch,
    Dataset,
    Fault(DataError),
}

/// The next documents.
pub(crate) fn next(
    documents: &mut impl Iterator<Item = Result<Document, DataError>>,
) -> (Vec<Document>, End) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while bytes < BYTES && batch.len() < DOCUMENTS {
        match documents.next() {
            Some(Ok(document)) => {
                bytes += document.text.len();
                batch.push(document);
            }
            Some(Err(error)) => return (batch, End::Fault(error)),
            None => return (batch, End::Dataset),
        }
    }
    (batch, End::Batch)
}
