//! The digest of what a shard is to compute.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::plan::MicroBatch;

/// `sha256:` of what a shard is to compute: for each micro-batch the number of windows as 64 bits,
/// then each window's document (32 bits), start (64), len (32), from (64) and to (64), all little
/// endian. A worker commits the digest of what it computed, and the two must agree.
pub fn spans_digest(micro_batches: &[MicroBatch]) -> String {
    let mut hash = Sha256::new();
    for MicroBatch(windows) in micro_batches {
        hash.update((windows.len() as u64).to_le_bytes());
        for window in windows {
            hash.update(window.document.to_le_bytes());
            hash.update(window.start.to_le_bytes());
            hash.update(window.len.to_le_bytes());
            hash.update(window.from.to_le_bytes());
            hash.update(window.to.to_le_bytes());
        }
    }
    hash.finalize()
        .iter()
        .fold(String::from("sha256:"), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string succeeds");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::Window;

    #[test]
    fn the_digest_is_of_the_documented_bytes() {
        let window = Window {
            document: 1,
            start: -1,
            len: 2,
            from: 0,
            to: 2,
        };
        // Python: hashlib.sha256(struct.pack("<QIqIQQ", 1, 1, -1, 2, 0, 2)).hexdigest()
        assert_eq!(
            spans_digest(&[MicroBatch(vec![window])]),
            "sha256:96b65a4490c316f45885440495128c0ea64bc04352dcf90a11441be034deef5e"
        );
        let second = Window {
            document: 2,
            ..window
        };
        assert_ne!(
            spans_digest(&[MicroBatch(vec![window, second])]),
            spans_digest(&[MicroBatch(vec![window]), MicroBatch(vec![second])])
        );
    }
}
