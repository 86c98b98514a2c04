//! Whether a text can be tokenized in the memory there is.

use std::fs;

use crate::error::DataError;

/// Bytes that the tokenizer takes for a byte of text while it works on it. Measured with a
/// byte-level BPE tokenizer: 4.2 GB for a text of 20 MB.
const MEMORY_PER_BYTE: u64 = 210;
/// Texts up to this many bytes are not checked.
const SMALL: u64 = 8 << 20;

/// Refuses a text that would bring the host down: the kernel would kill the worker, and the next
/// one that tries.
pub(crate) fn check(file: &str, bytes: u64) -> Result<(), DataError> {
    match available().filter(|_| bytes > SMALL) {
        Some(available) => fits(file, bytes, available),
        None => Ok(()),
    }
}

fn fits(file: &str, bytes: u64, available: u64) -> Result<(), DataError> {
    let needed = bytes.saturating_mul(MEMORY_PER_BYTE);
    if needed <= available {
        return Ok(());
    }
    Err(DataError::TooLargeForMemory {
        file: file.to_owned(),
        megabytes: bytes / 1_000_000,
        needed: needed as f64 / 1e9,
        available: available as f64 / 1e9,
    })
}

/// Bytes of memory that can be had without swapping, as the kernel estimates it.
fn available() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_to_fit_in_what_is_available() {
        assert!(fits("a.txt", 20_000_000, 4_200_000_000).is_ok());
        let error = fits("a.txt", 20_000_001, 4_200_000_000).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("a.txt") && text.contains("4.2 GB"), "{text}");
        assert!(fits("a.txt", u64::MAX, u64::MAX - 1).is_err());
    }

    #[test]
    fn the_kernel_tells_what_is_available() {
        assert!(available().unwrap() > 1 << 20);
    }
}
