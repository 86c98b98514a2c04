//! Whether a text can be tokenized in the memory there is.

use assay_process::memory::available;

use crate::error::DataError;

/// Bytes that the tokenizer takes for a byte of text while it works on it. Measured with a
/// byte-level BPE tokenizer: 4.2 GB for a text of 20 MB.
const MEMORY_PER_BYTE: u64 = 210;
/// Bytes that a record takes for a byte of its own while it is read: as it is, parsed, and its
/// text, each with room to grow.
const MEMORY_PER_READ_BYTE: u64 = 8;
/// Texts up to this many bytes are not checked.
const SMALL: u64 = 8 << 20;

/// What to do about a document that is too long.
pub(crate) const CUT: &str = "cut the text into documents, as a JSONL file";
/// What to do about joined documents that are too long.
pub(crate) const JOIN_LESS: &str =
    "take fewer documents by a limit, or score each alone by `rolling`";

/// Refuses a text that would bring the host down: the kernel would kill the worker, and the next
/// one that tries.
pub(crate) fn check(file: &str, bytes: u64, remedy: &'static str) -> Result<(), DataError> {
    match Some(bytes)
        .filter(|bytes| *bytes > SMALL)
        .and_then(|_| available())
    {
        Some(available) => fits(file, bytes, available, remedy),
        None => Ok(()),
    }
}

/// Bytes of a record, or of a whole text, that can be read at once.
pub(crate) fn largest_record() -> u64 {
    available()
        .map_or(u64::MAX, |available| available / MEMORY_PER_READ_BYTE)
        .max(SMALL)
}

fn fits(file: &str, bytes: u64, available: u64, remedy: &'static str) -> Result<(), DataError> {
    let needed = bytes.saturating_mul(MEMORY_PER_BYTE);
    if needed <= available {
        return Ok(());
    }
    Err(DataError::TooLargeForMemory {
        file: file.to_owned(),
        megabytes: bytes / 1_000_000,
        needed: needed as f64 / 1e9,
        available: available as f64 / 1e9,
        remedy,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_to_fit_in_what_is_available() {
        assert!(fits("a.txt", 20_000_000, 4_200_000_000, CUT).is_ok());
        let error = fits("a.txt", 20_000_001, 4_200_000_000, CUT).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("a.txt") && text.contains("4.2 GB"), "{text}");
        assert!(fits("a.txt", u64::MAX, u64::MAX - 1, CUT).is_err());
    }

    #[test]
    fn a_small_record_can_always_be_read() {
        assert!(largest_record() >= SMALL);
    }
}
